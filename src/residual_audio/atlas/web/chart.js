// Small charts: a legend, a histogram with a range, bars, dots with ranges, a spectrum.
(() => {
  const { el } = RA;
  const { number, alike } = RA.format;
  const BETTER = { higher: 'higher is better', lower: 'lower is better', neither: '' };

  function legend(scale, metric) {
    const { format } = metric;
    const steps = Array.from({ length: 24 }, (_, i) =>
      el('span', { style: { background: scale.ramp(i / 23) } }),
    );
    const ends = [number(scale.low, format), number(scale.high, format)];
    return el(
      'div',
      { class: 'legend' },
      metric.label ? el('div', { class: 'legend-title' }, metric.label) : null,
      el(
        'div',
        { class: 'ramp', role: 'img', 'aria-label': `colours from ${ends.join(' to ')}` },
        steps,
      ),
      el(
        'div',
        { class: 'between' },
        el('span', {}, (scale.beyond[0] ? '≤ ' : '') + ends[0]),
        el('span', { class: 'quiet' }, BETTER[metric.better] || ''),
        el('span', {}, (scale.beyond[1] ? '≥ ' : '') + ends[1]),
      ),
    );
  }

  // Bars of a metric; dragging over them, or the two fields, selects a range.
  function histogram(values, scale, metric, range, choose) {
    const known = values.filter((v) => v !== null && Number.isFinite(v));
    if (!known.length) return el('p', { class: 'quiet' }, 'No head has this number.');
    const low = Math.min(...known),
      high = Math.max(...known),
      span = high - low || 1;
    const n = 28,
      width = 280,
      height = 84;
    const counts = new Array(n).fill(0);
    for (const v of known) counts[Math.min(n - 1, Math.floor(((v - low) / span) * n))]++;
    const top = Math.max(...counts, 1);
    const svg = el('svg', {
      viewBox: `0 0 ${width} ${height}`,
      class: 'histogram',
      role: 'img',
      'aria-label': `distribution of ${metric.label} over ${known.length} heads`,
    });
    counts.forEach((count, i) => {
      const h = (count / top) * (height - 14),
        value = low + ((i + 0.5) / n) * span;
      const inside = !range || (value >= range[0] && value <= range[1]);
      svg.append(
        el(
          'rect',
          {
            x: (i * width) / n + 0.5,
            y: height - h,
            width: width / n - 1,
            height: h,
            class: 'column',
            fill: scale.colour(value) || 'gray',
            opacity: inside ? 1 : 0.25,
          },
          el('title', {}, `${count} heads about ${number(value, metric.format)}`),
        ),
      );
    });
    svg.append(el('text', { x: 0, y: 9, class: 'tick' }, `highest column: ${top} heads`));
    const mark = el('rect', { y: 12, height: height - 12, width: 0, class: 'brush' });
    svg.append(mark);
    let start = null;
    const share = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    };
    svg.addEventListener('pointerdown', (event) => {
      start = share(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener('pointermove', (event) => {
      if (start === null) return;
      const [a, b] = [start, share(event)].sort((x, y) => x - y);
      mark.setAttribute('x', a * width);
      mark.setAttribute('width', (b - a) * width);
    });
    svg.addEventListener('pointerup', (event) => {
      if (start === null) return;
      const ends = [start, share(event)].sort((a, b) => a - b);
      start = null;
      choose(ends[1] - ends[0] < 0.01 ? null : ends.map((s) => low + s * span));
    });
    const field = (side) =>
      el('input', {
        type: 'number',
        step: 'any',
        'aria-label': side ? 'highest value shown' : 'lowest value shown',
        value: Number((range ? range[side] : side ? high : low).toPrecision(4)),
        onchange: (event) => {
          const ends = range ? [...range] : [low, high];
          ends[side] = Number(event.target.value);
          choose(ends[0] <= ends[1] ? ends : null);
        },
      });
    const middle = range
      ? el('button', { type: 'button', class: 'small', onclick: () => choose(null) }, 'all')
      : el('span', { class: 'quiet' }, 'drag to select');
    return el(
      'div',
      { class: 'histogram-box' },
      svg,
      el('div', { class: 'range' }, field(0), middle, field(1)),
    );
  }

  // Rows of [label, value, note, href, [low, high]]. Bars go both ways from a middle line, or from
  // the left where all values have one sign; an interval is a line across the end of its bar.
  function bars(rows, { format, label, limit } = {}) {
    const values = rows.map((r) => r[1]),
      write = alike(values, format);
    const oneWay = values.every((v) => v >= 0) || values.every((v) => v <= 0);
    const spread = rows.some((r) => r[4] && r[4][0] !== null);
    const largest = Math.max(...values.map(Math.abs), 1e-12);
    const ends = spread ? rows.flatMap((r) => (r[4] || []).map((v) => Math.abs(v || 0))) : [0];
    const reach = limit || Math.max(largest, Math.min(Math.max(...ends), 3 * largest));
    const left = oneWay && !spread;
    const at = (v) => {
      const share = Math.min(Math.max(v / reach, -1), 1);
      return left ? 100 * Math.abs(share) : 50 + 50 * share;
    };
    const row = ([name, value, note, href, between]) => {
      const zero = left ? 0 : 50,
        end = at(value);
      const bar = el('span', {
        class: value < 0 ? 'bar minus' : 'bar plus',
        style: { left: `${Math.min(zero, end)}%`, width: `${Math.abs(end - zero)}%` },
      });
      const line =
        between && between[0] !== null
          ? el('span', {
              class: 'whisker',
              style: { left: `${at(between[0])}%`, width: `${at(between[1]) - at(between[0])}%` },
            })
          : null;
      const known = line
        ? `${note || name}: 95% interval ${number(between[0])} to ${number(between[1])}`
        : note;
      return el(
        'li',
        { title: known || null },
        href ? el('a', { href, class: 'bar-name' }, name) : el('span', { class: 'bar-name' }, name),
        el('span', { class: left ? 'track left' : 'track', 'aria-hidden': 'true' }, bar, line),
        el('span', { class: 'bar-value' }, write(value)),
      );
    };
    return el('ul', { class: 'bars', 'aria-label': label }, rows.map(row));
  }

  // The first and the last of many rows, and how many lie between.
  function outermost(rows, n) {
    return rows.length > 2 * n + 2
      ? [rows.slice(0, n), rows.slice(-n), rows.length - 2 * n]
      : [rows, [], 0];
  }

  const between = (n, what) => el('li', { class: 'gap quiet' }, `${n} ${what} between`);

  // Classes along a component: the mean of each, and the middle 80% of its clips.
  function strips(rows, label, { all = false, unit = 'σ' } = {}) {
    const ends = rows.flatMap((r) => [r[3], r[4]]);
    const low = Math.min(...ends, -1),
      high = Math.max(...ends, 1);
    const at = (v) => (100 * (v - low)) / (high - low);
    const write = alike(rows.map((r) => r[2]));
    const [first, last, n] = all ? [rows, [], 0] : outermost(rows, 5);
    const strip = ([name, count, mean, from, to]) =>
      el(
        'li',
        {
          title:
            `${name}: mean ${number(mean)} ${unit}, ` +
            `middle 80% from ${number(from)} to ${number(to)}, ${count} clips`,
        },
        el('span', { class: 'bar-name' }, name),
        el(
          'span',
          { class: 'track' },
          el('span', { class: 'zero', style: { left: `${at(0)}%` } }),
          el('span', {
            class: 'reach',
            style: { left: `${at(from)}%`, width: `${Math.max(at(to) - at(from), 0.5)}%` },
          }),
          el('span', { class: 'dot', style: { left: `${at(mean)}%` } }),
        ),
        el('span', { class: 'bar-value' }, write(mean)),
      );
    const axis = el(
      'li',
      { class: 'axis-row quiet', 'aria-hidden': 'true' },
      el('span', {}, ''),
      el(
        'span',
        { class: 'track' },
        RA.format
          .ticks(low, high, 6)
          .map((v) =>
            el(
              'span',
              { class: 'tick-at', style: { left: `${at(v)}%` } },
              RA.format.minus(String(v)),
            ),
          ),
      ),
      el('span', { class: 'bar-value' }, unit),
    );
    return el(
      'ul',
      { class: 'strips', 'aria-label': label },
      first.map(strip),
      n ? between(n, 'classes') : null,
      last.map(strip),
      axis,
    );
  }

  // Shares of the components, falling.
  function spectrum(shares, n) {
    const width = 280,
      height = 64,
      top = shares[0] || 1,
      bar = width / Math.max(shares.length, 12);
    const svg = el('svg', {
      viewBox: `0 0 ${width} ${height}`,
      class: 'spectrum',
      preserveAspectRatio: 'none',
      role: 'img',
      'aria-label': `spectrum: the first component holds ${number(shares[0], 'share')} of the variance`,
    });
    shares.forEach((share, i) => {
      const h = Math.max((share / top) * (height - 2), 0.75);
      svg.append(
        el(
          'rect',
          {
            x: i * bar + 0.5,
            width: Math.max(bar - 1.5, 0.5),
            y: height - h,
            height: h,
            class: i < n ? 'lead' : 'tail',
          },
          el('title', {}, `component ${i + 1}: ${number(share, 'share')}`),
        ),
      );
    });
    return svg;
  }

  RA.chart = { legend, histogram, bars, strips, spectrum, outermost, between };
})();
