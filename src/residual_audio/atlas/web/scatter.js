// Heads as points: by the shape of their spectra, or any two numbers against each other.
(() => {
  const { el } = RA;
  const { number, longName } = RA.format;
  const W = 760,
    H = 480,
    PAD = 52;

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
    if (pairs.length < 3) return [null, pairs.length];
    const a = rank(pairs.map((p) => p[0])),
      b = rank(pairs.map((p) => p[1]));
    const mean = (a.length - 1) / 2;
    let top = 0,
      left = 0,
      right = 0;
    a.forEach((v, i) => {
      top += (v - mean) * (b[i] - mean);
      left += (v - mean) ** 2;
      right += (b[i] - mean) ** 2;
    });
    return [left && right ? top / Math.sqrt(left * right) : null, pairs.length];
  }

  function select(state, key, change) {
    const groups = new Map();
    for (const m of RA.main.numbers) groups.set(m.group, [...(groups.get(m.group) || []), m]);
    const option = (m) => el('option', { value: m.key, selected: m.key === state[key] }, m.label);
    return el(
      'label',
      { class: 'field' },
      key === 'x' ? 'across ' : 'up ',
      el(
        'select',
        { id: `axis-${key}`, onchange: (event) => change({ [key]: event.target.value }) },
        [...groups].map(([group, list]) => el('optgroup', { label: group }, list.map(option))),
      ),
    );
  }

  // From the values along an axis to places on it, a little wider than they are.
  function axis(values, from, to) {
    const known = values.filter((v) => v !== null);
    const low = Math.min(...known),
      high = Math.max(...known),
      room = (high - low) * 0.03 || 0.5;
    const at = (v) => from + ((to - from) * (v - low + room)) / (high - low + 2 * room);
    return { at, low: low - room, high: high + room };
  }

  function grid(svg, x, y, across, up) {
    const write = (m, v) =>
      RA.format.minus(m.format === 'share' ? `${Number((100 * v).toPrecision(3))}%` : String(v));
    for (const v of RA.format.ticks(x.low, x.high)) {
      svg.append(
        el('line', { x1: x.at(v), x2: x.at(v), y1: 30, y2: H - PAD, class: 'grid' }),
        el(
          'text',
          { x: x.at(v), y: H - PAD + 18, class: 'tick', 'text-anchor': 'middle' },
          write(across, v),
        ),
      );
    }
    for (const v of RA.format.ticks(y.low, y.high)) {
      svg.append(
        el('line', { x1: PAD + 12, x2: W - 16, y1: y.at(v), y2: y.at(v), class: 'grid' }),
        el(
          'text',
          { x: PAD + 6, y: y.at(v) + 4, class: 'tick', 'text-anchor': 'end' },
          write(up, v),
        ),
      );
    }
    const named = (m) => `${m.label} (${m.group})`;
    svg.append(
      el(
        'text',
        { x: W - 16, y: H - 8, class: 'axis', 'text-anchor': 'end' },
        `${named(across)} →`,
      ),
      el('text', { x: 12, y: 18, class: 'axis' }, `↑ ${named(up)}`),
    );
  }

  function view(state, metric, scale, { range, lit, point, change }) {
    const { heads, layout, numbers } = RA.main,
      plane = state.view === 'plane';
    const find = (key) => numbers.find((m) => m.key === key) || numbers[0];
    const across = plane ? { values: layout.x } : find(state.x),
      up = plane ? { values: layout.y } : find(state.y);
    const x = axis(across.values, PAD + 12, W - 16),
      y = axis(up.values, H - PAD, 30);
    const svg = el('svg', {
      viewBox: `0 0 ${W} ${H}`,
      class: 'scatter',
      role: 'group',
      'aria-label': 'heads as points',
    });
    if (!plane) grid(svg, x, y, across, up);
    heads.id.forEach((id, i) => {
      if (across.values[i] === null || up.values[i] === null) return;
      const value = metric.values[i];
      const outside = range && (value === null || value < range[0] || value > range[1]);
      const out = outside || (lit && !lit[i]);
      svg.append(
        el(
          'circle',
          {
            cx: x.at(across.values[i]),
            cy: y.at(up.values[i]),
            r: lit && lit[i] ? 8 : 4.5 + heads.stage[i] * 0.8,
            fill: scale.colour(value) || 'gray',
            opacity: out ? 0.15 : 0.95,
            tabindex: 0,
            role: 'link',
            'data-id': id,
            'aria-label': `${longName(id)}: ${number(value, metric.format)}`,
            onmouseenter: () => point(i),
            onfocus: () => point(i),
            onclick: () => {
              location.hash = id;
            },
            onkeydown: (event) => {
              if (event.key === 'Enter') location.hash = id;
            },
          },
          el('title', {}, id),
        ),
      );
    });
    const stages = new Set(heads.stage).size > 1 ? ' Larger points are later stages.' : '';
    const about = plane
      ? `Heads that lie close have spectra of like shape (${layout.how}); ` +
        `directions have no meaning of their own.${stages}`
      : stages;
    if (plane) return el('div', {}, svg, el('p', { class: 'quiet small-text' }, about));
    const [rho, n] = spearman(across.values, up.values);
    const said =
      rho === null
        ? null
        : el(
            'span',
            { class: 'quiet' },
            `Spearman ρ ${RA.format.minus(rho.toFixed(2))} over ${n} heads`,
          );
    return el(
      'div',
      {},
      el('div', { class: 'toolbar' }, select(state, 'x', change), select(state, 'y', change), said),
      svg,
      el('p', { class: 'quiet small-text' }, about),
    );
  }

  RA.scatter = { view };
})();
