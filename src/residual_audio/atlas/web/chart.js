// Small charts: histogram with a range, bars, dots with ranges, a legend.
(() => {
  const { el } = RA;
  const { number } = RA.format;

  function legend(scale, metric) {
    const steps = Array.from({ length: 24 }, (_, i) =>
      el('span', { style: { background: scale.ramp(i / 23) } }));
    const better = { higher: 'higher is better', lower: 'lower is better', neither: '' }[metric.better];
    return el('div', { class: 'legend' },
      el('div', { class: 'ramp', role: 'img', 'aria-label':
        `colours from ${number(scale.low, metric.format)} to ${number(scale.high, metric.format)}` }, steps),
      el('div', { class: 'ends' },
        el('span', {}, number(scale.low, metric.format)),
        el('span', { class: 'quiet' }, better),
        el('span', {}, number(scale.high, metric.format))));
  }

  // Bars of a metric; dragging over them, or the two fields, selects a range.
  function histogram(values, scale, metric, range, choose) {
    const known = values.filter((v) => v !== null && Number.isFinite(v));
    const low = Math.min(...known), high = Math.max(...known), span = high - low || 1;
    const n = 28, counts = new Array(n).fill(0);
    for (const v of known) counts[Math.min(n - 1, Math.floor(((v - low) / span) * n))]++;
    const top = Math.max(...counts, 1), width = 280, height = 84;
    const svg = el('svg', { viewBox: `0 0 ${width} ${height}`, class: 'histogram', role: 'img',
      'aria-label': `distribution of ${metric.label} over ${known.length} heads` });
    counts.forEach((count, i) => {
      const h = (count / top) * (height - 4), value = low + ((i + 0.5) / n) * span;
      const inside = !range || (value >= range[0] && value <= range[1]);
      svg.append(el('rect', { x: (i * width) / n + 0.5, y: height - h, width: width / n - 1, height: h,
        fill: scale.colour(value) || 'gray', opacity: inside ? 1 : 0.25 },
      el('title', {}, `${count} heads about ${number(value, metric.format)}`)));
    });
    let start = null;
    const where = (event) => {
      const box = svg.getBoundingClientRect();
      return low + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * span;
    };
    svg.addEventListener('pointerdown', (event) => { start = where(event); svg.setPointerCapture(event.pointerId); });
    svg.addEventListener('pointerup', (event) => {
      if (start === null) return;
      const ends = [start, where(event)].sort((a, b) => a - b);
      start = null;
      choose(ends[1] - ends[0] < span / 100 ? null : ends);
    });
    const field = (side) => el('input', { type: 'number', step: 'any', 'aria-label': side ? 'highest value shown' : 'lowest value shown',
      value: range ? Number(range[side].toPrecision(4)) : Number((side ? high : low).toPrecision(4)),
      onchange: (event) => {
        const ends = range ? [...range] : [low, high];
        ends[side] = Number(event.target.value);
        choose(ends[0] <= ends[1] ? ends : null);
      } });
    return el('div', { class: 'histogram-box' }, svg, el('div', { class: 'range' }, field(0),
      range ? el('button', { type: 'button', class: 'small', onclick: () => choose(null) }, 'all') : el('span', { class: 'quiet' }, 'drag to select'), field(1)));
  }

  // Rows of [label, value, note, href], bars from a middle line.
  function bars(rows, { format, label, limit } = {}) {
    const reach = limit || Math.max(...rows.map((r) => Math.abs(r[1])), 1e-12);
    return el('ul', { class: 'bars', 'aria-label': label }, rows.map(([name, value, note, href]) => {
      const share = Math.min(Math.abs(value) / reach, 1) * 50;
      const bar = el('span', { class: value < 0 ? 'bar minus' : 'bar plus',
        style: { width: `${share}%`, left: `${value < 0 ? 50 - share : 50}%` } });
      return el('li', { title: note || null },
        href ? el('a', { href, class: 'bar-name' }, name) : el('span', { class: 'bar-name' }, name),
        el('span', { class: 'track', 'aria-hidden': 'true' }, bar),
        el('span', { class: 'bar-value' }, number(value, format)));
    }));
  }

  // Classes along a component: the mean of each, and the middle 80% of its clips.
  function strips(rows, label) {
    const ends = rows.flatMap((r) => [r[3], r[4]]);
    const low = Math.min(...ends, -1), high = Math.max(...ends, 1);
    const at = (v) => (100 * (v - low)) / (high - low);
    return el('ul', { class: 'strips', 'aria-label': label }, rows.map(([name, n, mean, from, to]) =>
      el('li', { title: `${name}: mean ${number(mean)} σ, middle 80% from ${number(from)} to ${number(to)}, ${n} clips` },
        el('span', { class: 'bar-name' }, name),
        el('span', { class: 'track' },
          el('span', { class: 'zero', style: { left: `${at(0)}%` } }),
          el('span', { class: 'reach', style: { left: `${at(from)}%`, width: `${Math.max(at(to) - at(from), 0.5)}%` } }),
          el('span', { class: 'dot', style: { left: `${at(mean)}%` } })),
        el('span', { class: 'bar-value' }, number(mean)))));
  }

  // A falling line of shares.
  function spectrum(shares, n) {
    const width = 280, height = 90, top = shares[0] || 1;
    const bar = width / Math.max(shares.length, 12);
    const svg = el('svg', { viewBox: `0 0 ${width} ${height}`, class: 'histogram', role: 'img',
      'aria-label': `spectrum: the first component holds ${number(shares[0], 'share')} of the variance` });
    shares.forEach((share, i) => svg.append(el('rect', { x: i * bar + 0.5, width: Math.max(bar - 1, 0.5),
      y: height - (share / top) * (height - 4), height: (share / top) * (height - 4), class: i < n ? 'lead' : 'tail' },
    el('title', {}, `component ${i + 1}: ${number(share, 'share')}`))));
    return svg;
  }

  RA.chart = { legend, histogram, bars, strips, spectrum };
})();
