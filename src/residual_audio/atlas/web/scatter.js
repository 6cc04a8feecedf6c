// Heads as points: by the shape of their spectra, or any two numbers against each other.
(() => {
  const { el } = RA;
  const { number, longName } = RA.format;
  const W = 760, H = 480, PAD = 46;

  // Spearman's rank correlation of the pairs that are there.
  function rank(values) {
    const order = values.map((v, i) => [v, i]).sort((a, b) => a[0] - b[0]);
    const out = new Array(values.length);
    for (let i = 0; i < order.length;) {
      let j = i;
      while (j < order.length && order[j][0] === order[i][0]) j++;
      for (let k = i; k < j; k++) out[order[k][1]] = (i + j - 1) / 2;
      i = j;
    }
    return out;
  }

  function spearman(x, y) {
    const pairs = x.map((v, i) => [v, y[i]]).filter(([a, b]) => a !== null && b !== null);
    if (pairs.length < 3) return null;
    const a = rank(pairs.map((p) => p[0])), b = rank(pairs.map((p) => p[1]));
    const mean = (a.length - 1) / 2;
    let top = 0, left = 0, right = 0;
    a.forEach((v, i) => { top += (v - mean) * (b[i] - mean); left += (v - mean) ** 2; right += (b[i] - mean) ** 2; });
    return left && right ? top / Math.sqrt(left * right) : null;
  }

  function select(state, key, change) {
    return el('label', { class: 'field' }, key === 'x' ? 'across ' : 'up ',
      el('select', { onchange: (event) => change({ [key]: event.target.value }) },
        RA.main.numbers.map((m) => el('option', { value: m.key, selected: m.key === state[key] }, `${m.label} · ${m.group}`))));
  }

  function view(state, metric, scale, { range, lit, point, change }) {
    const { heads, layout, numbers } = RA.main, plane = state.view === 'plane';
    const find = (key) => numbers.find((m) => m.key === key) || numbers[0];
    const across = plane ? null : find(state.x), up = plane ? null : find(state.y);
    const x = plane ? layout.x : across.values, y = plane ? layout.y : up.values;
    const ends = (list) => { const k = list.filter((v) => v !== null); return [Math.min(...k), Math.max(...k)]; };
    const [x0, x1] = ends(x), [y0, y1] = ends(y);
    const px = (v) => PAD + ((W - 2 * PAD) * (v - x0)) / (x1 - x0 || 1);
    const py = (v) => H - PAD - ((H - 2 * PAD) * (v - y0)) / (y1 - y0 || 1);
    const svg = el('svg', { viewBox: `0 0 ${W} ${H}`, class: 'scatter', role: 'group', 'aria-label': 'heads as points' });
    if (!plane) {
      for (const [m, ax] of [[across, 'x'], [up, 'y']]) {
        const [a, b] = ax === 'x' ? [x0, x1] : [y0, y1];
        for (let i = 0; i <= 4; i++) {
          const v = a + ((b - a) * i) / 4;
          svg.append(ax === 'x' ? el('text', { x: px(v), y: H - 24, class: 'tick', 'text-anchor': 'middle' }, number(v, m.format))
            : el('text', { x: PAD - 8, y: py(v) + 4, class: 'tick', 'text-anchor': 'end' }, number(v, m.format)));
        }
      }
      svg.append(el('text', { x: W / 2, y: H - 6, class: 'axis', 'text-anchor': 'middle' }, across.label),
        el('text', { x: 12, y: 16, class: 'axis' }, `↑ ${up.label}`));
    }
    heads.id.forEach((id, i) => {
      if (x[i] === null || y[i] === null) return;
      const value = metric.values[i];
      const out = (range && (value === null || value < range[0] || value > range[1])) || (lit && !lit[i]);
      svg.append(el('circle', { cx: px(x[i]), cy: py(y[i]), r: lit && lit[i] ? 8 : 5 + heads.stage[i] * 0.6, fill: scale.colour(value) || 'gray', opacity: out ? 0.15 : 0.95,
        tabindex: 0, role: 'link', 'data-id': id, 'aria-label': `${longName(id)}: ${number(value, metric.format)}`,
        onmouseenter: () => point(i), onfocus: () => point(i), onclick: () => { location.hash = id; },
        onkeydown: (event) => { if (event.key === 'Enter') location.hash = id; } }));
    });
    const rho = plane ? null : spearman(x, y);
    return el('div', {}, plane ? null : el('div', { class: 'toolbar' }, select(state, 'x', change), select(state, 'y', change),
      rho === null ? null : el('span', { class: 'quiet' }, `Spearman ρ ${number(rho)} over ${heads.id.length} heads`)),
    svg, plane ? el('p', { class: 'quiet small-text' }, layout.how, '; larger points are later stages') : null);
  }

  RA.scatter = { view };
})();
