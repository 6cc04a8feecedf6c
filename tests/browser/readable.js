// Contrast of every text with its ground (WCAG AA), names of all that can be used, ids that stand once.
() => {
  const light = (c) => {
    const v = c.map((x) => x / 255).map((x) => (x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2];
  };
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const ground = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const c = parse(getComputedStyle(n).backgroundColor);
      if (c.length === 3 || c[3] > 0.9) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    const apart = '.hidden-text, .skip, svg, option, noscript, .picture, script';
    if (!box.width || style.visibility === 'hidden' || node.closest(apart)) continue;
    if (own) {
      const a = light(parse(style.color).slice(0, 3)), b = light(ground(node));
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${node.tagName} ${node.textContent.slice(0, 30)}`);
    }
    if (/^(A|BUTTON|INPUT|SELECT|CANVAS)$/.test(node.tagName)) {
      const name = node.getAttribute('aria-label') || node.textContent.trim() || (node.labels && node.labels.length);
      if (!name) found.push(`no name: ${node.outerHTML.slice(0, 80)}`);
    }
  }
  const ids = [...document.querySelectorAll('[id]')].map((n) => n.id);
  for (const id of new Set(ids)) if (ids.filter((x) => x === id).length > 1) found.push(`twice: #${id}`);
  return found;
}
