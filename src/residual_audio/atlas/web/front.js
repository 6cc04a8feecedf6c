// The front: what is gained here against what is lost elsewhere, every edit a point.
(() => {
  const { el } = RA;
  const { number } = RA.format;
  const W = 620,
    H = 300,
    PAD = 44;

  function view(front) {
    const points = front.flatMap((line) => line.points);
    const ends = (k) => [
      Math.min(0, ...points.map((p) => p[k])),
      Math.max(0, ...points.map((p) => p[k])),
    ];
    const [x0, x1] = ends(2),
      [y0, y1] = ends(1),
      largest = Math.max(...points.map((p) => p[4]), 1e-12);
    const px = (v) => PAD + ((W - 2 * PAD) * (v - x0)) / (x1 - x0 || 1);
    const py = (v) => H - PAD - ((H - 2 * PAD) * (v - y0)) / (y1 - y0 || 1);
    const svg = el('svg', {
      viewBox: `0 0 ${W} ${H}`,
      class: 'front',
      role: 'img',
      'aria-label': `${points.length} edits: accuracy gained here against accuracy lost on reference clips`,
    });
    svg.append(
      el('line', { x1: px(x0), x2: px(x1), y1: py(0), y2: py(0), class: 'zero-line' }),
      el('line', { x1: px(0), x2: px(0), y1: py(y0), y2: py(y1), class: 'zero-line' }),
    );
    front.forEach((line, f) => {
      svg.append(
        el('polyline', {
          points: line.points.map((p) => `${px(p[2])},${py(p[1])}`).join(' '),
          class: `family f${f % 7}`,
        }),
      );
      for (const [setting, gained, lost, error, size] of line.points) {
        svg.append(
          el(
            'circle',
            {
              cx: px(lost),
              cy: py(gained),
              r: 3 + 5 * Math.sqrt(size / largest),
              class: `point f${f % 7}`,
            },
            el(
              'title',
              {},
              `${line.family} at ${number(setting)}: ${number(100 * gained)} points here, ` +
                `${number(100 * lost)} ± ${number(100 * error)} lost elsewhere, ` +
                `embeddings moved by ${number(size)}`,
            ),
          ),
        );
      }
    });
    for (const v of [x0, x1])
      svg.append(
        el(
          'text',
          { x: px(v), y: H - PAD + 16, class: 'tick', 'text-anchor': 'middle' },
          number(100 * v),
        ),
      );
    for (const v of [y0, y1])
      svg.append(
        el(
          'text',
          { x: PAD - 6, y: py(v) + 4, class: 'tick', 'text-anchor': 'end' },
          number(100 * v),
        ),
      );
    svg.append(
      el(
        'text',
        { x: W / 2, y: H - 8, class: 'axis', 'text-anchor': 'middle' },
        'points lost on reference clips',
      ),
      el('text', { x: 10, y: 16, class: 'axis' }, '↑ points gained here'),
    );
    return el(
      'details',
      { id: 'front' },
      el('summary', {}, 'Gained here, lost elsewhere'),
      svg,
      el(
        'ul',
        { class: 'key' },
        front.map((line, f) =>
          el(
            'li',
            {},
            el('span', { class: `swatch f${f % 7}`, 'aria-hidden': 'true' }),
            ` ${line.family}`,
          ),
        ),
      ),
      el(
        'p',
        { class: 'quiet small-text' },
        'Every edit that was followed, on folds that did not train it; larger circles move more. ' +
          'Nothing was chosen: reading off the best point would be choosing on the clips it is ' +
          'shown on.',
      ),
    );
  }

  RA.front = { view };
})();
