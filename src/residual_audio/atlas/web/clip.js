// The page of a clip: listen, the answers, and which parts speak for and against each.
(() => {
  const { el, unpack } = RA;
  const { number, csv } = RA.format;
  const N = 10;

  const isHead = (name) => /^s\d+\.b\d+\.h\d+$/.test(name);

  // Of an answer: each term of its score, and their sum.
  function termsOf(piece, a) {
    const terms = unpack(piece.terms),
      width = terms.shape[1];
    const own = Array.from(terms.values.slice(a * width, (a + 1) * width));
    return { own, sum: own.reduce((x, y) => x + y, 0) };
  }

  function speakers(piece, a) {
    const { terms: names, classes, heads } = RA.main,
      { own, sum } = termsOf(piece, a);
    const [code, score] = piece.answers[a];
    const byName = new Map(names.map((name, i) => [name, own[i]]));
    const rows = names.map((name, i) => [name, own[i], null, isHead(name) ? `#${name}` : null]);
    const heard = rows.filter((r) => isHead(r[0])).sort((x, y) => y[1] - x[1]);
    const rest = rows.filter((r) => !isHead(r[0])).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
    const metric = {
      label: `Term in the score of ${classes[code]}`,
      values: heads.id.map((id) => byName.get(id)),
      format: 'number',
      better: 'neither',
    };
    const scale = RA.colour.scale(metric.values, true, 0);
    const limit = Math.max(...heard.map((r) => Math.abs(r[1])));
    const total = (list) =>
      number(
        list.reduce((x, r) => x + r[1], 0),
        'score',
      );
    const part = (label, all, list, reach) =>
      el(
        'div',
        {},
        el('h4', {}, label, el('span', { class: 'quiet' }, ` together ${total(all)}`)),
        RA.chart.bars(list, { label, limit: reach }),
      );
    const up = heard.filter((r) => r[1] > 0),
      down = heard.filter((r) => r[1] < 0).reverse();
    const pointed = el(
      'p',
      { class: 'quiet small-text', role: 'status' },
      'Point at a head to read its term.',
    );
    const point = (i) => {
      pointed.textContent = `${heads.id[i]}: ${number(metric.values[i])}`;
    };
    return el(
      'div',
      {},
      el(
        'p',
        {},
        `${own.length} terms sum to ${number(sum, 'score')}; ` +
          `the score of “${classes[code]}” is ${number(score, 'score')}.`,
        el(
          'span',
          { class: 'quiet' },
          ' Exact direct contributions, through the joint head as it is at this clip.',
        ),
      ),
      el(
        'div',
        { class: 'beside' },
        el('div', {}, RA.map.cells(metric, scale, { point, href: (id) => `#${id}`, plain: true })),
        el('aside', {}, RA.chart.legend(scale, metric), pointed),
      ),
      el(
        'div',
        { class: 'columns' },
        part('Heads for it', up, up.slice(0, N), limit),
        part('Heads against it', down, down.slice(0, N), limit),
        part('All that is no head', rest, rest.slice(0, N)),
      ),
    );
  }

  // The answers as buttons: cosines from 0 to the best, the right one marked.
  function answerRows(piece, show) {
    const { clips, classes } = RA.main,
      label = clips.label[piece.row];
    const best = Math.max(...piece.answers.map(([, score]) => score), 1e-6);
    return piece.answers.map(([code, score], a) => {
      const right = classes[code] === label;
      return el(
        'button',
        { type: 'button', class: 'answer-row', 'aria-pressed': 'false', onclick: () => show(a) },
        el('span', { class: right ? 'right' : '' }, classes[code], right ? ' ✓' : ''),
        el(
          'span',
          { class: 'track left', 'aria-hidden': 'true' },
          el('span', {
            class: 'bar plus',
            style: { left: '0', width: `${Math.max(0, (100 * score) / Math.max(best, 1))}%` },
          }),
        ),
        el('span', {}, number(score, 'score')),
      );
    });
  }

  function answersOf(piece, buttons) {
    const { clips, answered_by: by } = RA.main;
    if (!buttons.length) return el('p', {}, 'No answers: this run has no classes to choose from.');
    const what =
      by === 'centroids'
        ? 'cosine with the mean of each class in other folds'
        : 'cosine with the text of each class';
    return el(
      'section',
      {},
      el(
        'h3',
        {},
        'The model’s answers ',
        el(
          'span',
          { class: 'quiet' },
          `${what}; probability of the first ${number(clips.probability[piece.row], 'share')}`,
        ),
      ),
      el('div', { class: 'answers' }, buttons),
      buttons.length > 5
        ? el(
            'p',
            { class: 'quiet small-text' },
            'The last one is the right answer, which is not among the first five.',
          )
        : null,
    );
  }

  function toolbar(piece) {
    const { clips, classes, terms } = RA.main,
      row = piece.row,
      n = clips.id.length;
    const save = () => {
      const lines = piece.answers.map(([code, score], a) => [
        classes[code],
        score,
        ...termsOf(piece, a).own,
      ]);
      RA.save(`clip-${row}.csv`, csv(['answer', 'score', ...terms], lines), 'text/csv');
    };
    return el(
      'div',
      { class: 'toolbar' },
      el(
        'a',
        {
          class: 'small button',
          href: `#clip/${(row + n - 1) % n}`,
          'aria-label': 'previous clip',
        },
        '←',
      ),
      el('h2', {}, RA.clipName(row), el('span', { class: 'quiet' }, ` ${clips.id[row]}`)),
      el(
        'a',
        { class: 'small button', href: `#clip/${(row + 1) % n}`, 'aria-label': 'next clip' },
        '→',
      ),
      piece.terms ? el('button', { type: 'button', class: 'small', onclick: save }, 'CSV') : null,
    );
  }

  function page(piece) {
    const { classes } = RA.main;
    const box = el('div', { id: 'speakers' });
    const times = piece.times ? RA.times.view(piece.times) : null;
    const card = RA.audio.card(piece.row, { large: true, follow: times ? [times.line] : [] });
    const show = (a) => {
      if (piece.terms) box.replaceChildren(speakers(piece, a));
      if (times) times.answer(classes[piece.answers[a][0]]);
      buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(i === a)));
    };
    const buttons = piece.answers ? answerRows(piece, show) : [];
    const captions = piece.captions.length
      ? el(
          'ul',
          { class: 'captions quiet' },
          piece.captions.map((c) => el('li', {}, c)),
        )
      : null;
    const node = el(
      'article',
      { class: 'clip-page' },
      toolbar(piece),
      el('div', { class: 'beside even' }, el('div', {}, card, captions), answersOf(piece, buttons)),
      times ? times.node : null,
      piece.terms
        ? el(
            'section',
            { class: 'panel' },
            el('h3', {}, 'Which heads speak for and against it'),
            box,
          )
        : null,
    );
    if (buttons.length) show(0);
    return node;
  }

  // All clips, the wrongly answered first.
  function list() {
    const { clips, classes } = RA.main,
      labelled = clips.label.some((l) => l !== null);
    const wrong = (i) =>
      clips.predicted && clips.label[i] !== null && classes[clips.predicted[i]] !== clips.label[i];
    const order = clips.id.map((_, i) => i).sort((a, b) => wrong(b) - wrong(a) || a - b);
    const names = [
      'clip',
      labelled ? 'label' : null,
      clips.predicted ? 'first answer' : null,
      clips.predicted ? 'probability' : null,
      'sound',
    ].filter(Boolean);
    const row = (i) =>
      el(
        'tr',
        { class: wrong(i) ? 'wrong-row' : '' },
        el('td', {}, el('a', { href: `#clip/${i}` }, clips.id[i])),
        labelled ? el('td', {}, clips.label[i] || '–') : null,
        clips.predicted
          ? el('td', {}, `${classes[clips.predicted[i]]}${wrong(i) ? ' ✕' : ''}`)
          : null,
        clips.predicted ? el('td', {}, number(clips.probability[i], 'share')) : null,
        el('td', {}, clips.sound[i] ? '♪' : '–'),
      );
    const save = () =>
      RA.save(
        'clips.csv',
        csv(
          ['clip', 'label', 'first answer', 'probability', 'fold'],
          clips.id.map((id, i) => [
            id,
            clips.label[i],
            clips.predicted ? classes[clips.predicted[i]] : null,
            clips.probability ? clips.probability[i] : null,
            clips.fold[i],
          ]),
        ),
        'text/csv',
      );
    const n = order.filter(wrong).length;
    return el(
      'article',
      {},
      el(
        'div',
        { class: 'toolbar' },
        el('h2', {}, `${clips.id.length} clips`),
        el('button', { type: 'button', class: 'small', onclick: save }, 'CSV'),
      ),
      clips.predicted && labelled
        ? el(
            'p',
            { class: 'quiet' },
            n
              ? `${n} of them answered wrongly (✕); those come first.`
              : 'All of them are answered rightly.',
          )
        : null,
      el(
        'table',
        { class: 'list' },
        el(
          'thead',
          {},
          el(
            'tr',
            {},
            names.map((t) => el('th', { scope: 'col' }, t)),
          ),
        ),
        el('tbody', {}, order.map(row)),
      ),
    );
  }

  RA.views.clip = async (row) => page(await RA.load(`clip/${row}`));
  RA.views.clips = async () => list();
})();
