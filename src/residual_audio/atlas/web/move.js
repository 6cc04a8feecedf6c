// Move it: gains of stages, blocks, heads and components, and what they do, live.
(() => {
  const { el } = RA;
  const { number, csv, minus } = RA.format;
  const Z = 1.96;

  // A 95% interval of a share (Wilson).
  function wilson(k, n) {
    const p = k / n,
      d = 1 + (Z * Z) / n,
      m = (p + (Z * Z) / (2 * n)) / d;
    const r = (Z * Math.sqrt((p * (1 - p)) / n + (Z * Z) / (4 * n * n))) / d;
    return [m - r, m + r];
  }

  // The change of the accuracy in points, with a 95% interval of paired answers.
  function paired(found, before, codes) {
    let up = 0,
      down = 0,
      n = 0;
    codes.forEach((code, i) => {
      if (code < 0) return;
      n++;
      const was = before.predicted[i] === code,
        is = found.predicted[i] === code;
      if (is && !was) up++;
      if (was && !is) down++;
    });
    const gap = (up - down) / n,
      error = Math.sqrt(Math.max(up + down - (up - down) ** 2 / n, 0)) / n;
    return [gap, gap - Z * error, gap + Z * error].map((v) => 100 * v);
  }

  const points = (v) => `${v > 0.05 ? '+' : ''}${minus((Math.abs(v) < 0.05 ? 0 : v).toFixed(1))}`;

  // The accuracy, large, and how it differs from where it was.
  function scoreboard(engine, before) {
    const accuracy = el('strong', { id: 'accuracy' }),
      delta = el('span', { id: 'delta' });
    const spread = el('span', { class: 'quiet' });
    const of = engine.of > engine.n ? ` of ${engine.of}, spread over the classes` : '';
    const chance = number(1 / engine.classes.length, 'share');
    function show(found) {
      accuracy.textContent = number(found.accuracy, 'share');
      accuracy.dataset.value = found.accuracy;
      if (!found.labelled) {
        delta.textContent = 'no clip has a label';
        return;
      }
      const [gap, low, high] = paired(found, before, engine.codes);
      const moved = gap || high > low ? ` (95% interval ${points(low)} to ${points(high)})` : '';
      delta.textContent = `${points(gap)} points from ${RA.sliders.start()}${moved}`;
      const [from, to] = wilson(found.right, found.labelled);
      spread.textContent =
        `95% interval ${number(from, 'share')} to ${number(to, 'share')}; ` +
        `${found.labelled} clips${of}; chance ${chance}`;
    }
    return { show, node: el('div', { class: 'score' }, accuracy, spread, delta) };
  }

  // Clips that are answered otherwise than before.
  function changes(engine, before) {
    const list = el('ul', { class: 'flips' }),
      { clips } = RA.main;
    let last = before;
    const name = (i) => RA.clipName(engine.rows[i]);
    const row = (i) => {
      const right = last.predicted[i] === engine.codes[i],
        was = before.predicted[i] === engine.codes[i];
      return el(
        'li',
        { class: right ? 'better' : was ? 'worse' : '' },
        el('a', { href: `#clip/${engine.rows[i]}` }, name(i)),
        `: ${engine.classes[before.predicted[i]]} → ${engine.classes[last.predicted[i]]}`,
        right ? ' ✓' : was ? ' ✕' : '',
      );
    };
    function show(found) {
      last = found;
      const moved = [...found.predicted.keys()].filter(
        (i) => found.predicted[i] !== before.predicted[i],
      );
      const more =
        moved.length > 30
          ? el('li', { class: 'quiet' }, `and ${moved.length - 30} more (all in the CSV)`)
          : '';
      list.replaceChildren(
        ...moved.slice(0, 30).map(row),
        more,
        moved.length
          ? ''
          : el(
              'li',
              { class: 'quiet' },
              `no clip is answered otherwise than by ${RA.sliders.start()}`,
            ),
      );
    }
    const save = () =>
      RA.save(
        'answers.csv',
        csv(
          ['clip', 'label', 'before', 'now'],
          [...last.predicted].map((p, i) => [
            clips.id[engine.rows[i]],
            clips.label[engine.rows[i]],
            engine.classes[before.predicted[i]],
            engine.classes[p],
          ]),
        ),
        'text/csv',
      );
    return {
      show,
      node: el(
        'section',
        {},
        el(
          'h3',
          {},
          'Answers that changed ',
          el('button', { type: 'button', class: 'small', onclick: save }, 'CSV'),
        ),
        list,
      ),
    };
  }

  RA.views.move = async (state) => {
    if (!RA.main.move)
      return el(
        'p',
        {},
        'Nothing to move: the direct path to the joint embedding was not captured, ' +
          'or there are no classes.',
      );
    const engine = await RA.engine(),
      before = await engine.run({}, {});
    const views = [
      scoreboard(engine, before),
      RA.pictures.plane(engine, before, RA.sliders.start()),
      RA.pictures.confusion(engine),
      changes(engine, before),
    ];
    const [score, plane, matrix, flips] = views;
    let busy = false,
      next = null,
      last = before;

    async function show(live) {
      if (busy) {
        next = live;
        return;
      }
      busy = true;
      const began = performance.now();
      last = await engine.run(live.gains, live.presets);
      for (const view of views) (view.show || view.draw)(last);
      score.node.firstChild.dataset.ms = (performance.now() - began).toFixed(1);
      RA.scores = { values: last.scores, rows: engine.rows, classes: engine.classes };
      busy = false;
      if (next) {
        const again = next;
        next = null;
        await show(again);
      }
    }
    let timer = null;
    const { live, node } = RA.sliders.build(
      state,
      (now) => {
        show(now);
        clearTimeout(timer);
        timer = setTimeout(() => RA.remember('move', RA.gainsQuery(now)), 400);
      },
      () => last.accuracy,
    );
    await show(live);
    return el(
      'article',
      { class: 'move' },
      el(
        'h2',
        {},
        'Move it ',
        el(
          'span',
          { class: 'quiet' },
          'every score is computed again in this page, from direct contributions',
        ),
      ),
      score.node,
      el(
        'div',
        { class: 'beside left' },
        node,
        el('div', {}, el('div', { class: 'columns' }, plane.node, matrix.node), flips.node),
      ),
    );
  };
})();
