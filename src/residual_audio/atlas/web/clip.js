// The page of a clip: listen, the answers, and which parts speak for and against each.
(() => {
  const { el, unpack } = RA;
  const { number, csv } = RA.format;
  const N = 10;

  const isHead = (name) => /^s\d+\.b\d+\.h\d+$/.test(name);

  function speakers(piece, a) {
    const { terms: names, classes, heads } = RA.main;
    const terms = unpack(piece.terms), width = terms.shape[1];
    const own = Array.from(terms.values.slice(a * width, (a + 1) * width));
    const [code, score] = piece.answers[a];
    const byHead = new Map(names.map((name, i) => [name, own[i]]));
    const rows = names.map((name, i) => [name, own[i], null, isHead(name) ? `#${name}` : null]);
    const heard = rows.filter((r) => isHead(r[0])).sort((x, y) => y[1] - x[1]);
    const rest = rows.filter((r) => !isHead(r[0])).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
    const metric = { label: `term in the score of ${classes[code]}`, values: heads.id.map((id) => byHead.get(id)), format: 'number' };
    const scale = RA.colour.scale(metric.values, true, 0);
    const sum = own.reduce((x, y) => x + y, 0);
    const limit = Math.max(...heard.map((r) => Math.abs(r[1])));
    const part = (label, list, reach) => el('div', {}, el('h4', {}, label), RA.chart.bars(list, { label, limit: reach }));
    return el('div', {},
      el('p', {}, `${own.length} terms sum to ${number(sum)}; the score of “${classes[code]}” is ${number(score)}.`,
        el('span', { class: 'quiet' }, ' Exact direct contributions, through the joint head as it is at this clip.')),
      RA.map.cells(metric, scale, { point: () => {}, href: (id) => `#${id}` }),
      RA.chart.legend(scale, { format: 'number', better: 'neither' }),
      el('div', { class: 'columns' }, part('heads for it', heard.slice(0, N).filter((r) => r[1] > 0), limit), part('heads against it', heard.slice(-N).reverse().filter((r) => r[1] < 0), limit), part('all that is no head', rest.slice(0, N))));
  }

  function page(piece) {
    const { clips, classes, terms } = RA.main, row = piece.row, n = clips.id.length;
    const label = clips.label[row];
    const card = RA.audio.card(row, { large: true });
    const box = el('div', { id: 'speakers' });
    const times = piece.times ? RA.times.view(piece.times) : null;
    const show = (a) => {
      if (piece.terms) box.replaceChildren(speakers(piece, a));
      if (times) times.answer(classes[piece.answers[a][0]]);
      for (const [i, button] of buttons.entries()) button.setAttribute('aria-pressed', String(i === a));
    };
    const answers = piece.answers || [];
    const buttons = answers.map(([code, score], a) => el('button', { type: 'button', class: 'answer-row', 'aria-pressed': 'false', onclick: () => show(a) },
      el('span', { class: classes[code] === label ? 'right' : '' }, classes[code], classes[code] === label ? ' ✓' : ''),
      el('span', { class: 'track', 'aria-hidden': 'true' }, el('span', { class: 'bar plus', style: { left: '0', width: `${Math.max(0, 100 * score)}%` } })),
      el('span', {}, number(score))));
    const node = el('article', { class: 'clip-page' },
      el('div', { class: 'toolbar' },
        el('a', { class: 'small button', href: `#clip/${(row + n - 1) % n}`, 'aria-label': 'previous clip' }, '←'),
        el('h2', {}, label || clips.id[row], el('span', { class: 'quiet' }, ` ${clips.id[row]}`)),
        el('a', { class: 'small button', href: `#clip/${(row + 1) % n}`, 'aria-label': 'next clip' }, '→'),
        terms.length && answers.length ? el('button', { type: 'button', class: 'small', onclick: () => {
          const all = unpack(piece.terms), width = all.shape[1];
          RA.save(`clip-${row}.csv`, csv(['answer', ...terms], answers.map(([code], a) => [classes[code], ...all.values.slice(a * width, (a + 1) * width)])), 'text/csv');
        } }, 'CSV') : null),
      el('div', { class: 'beside even' }, el('div', {}, card,
        piece.captions.length ? el('ul', { class: 'quiet' }, piece.captions.map((c) => el('li', {}, c))) : null),
      answers.length ? el('section', {}, el('h3', {}, 'The model’s answers ', el('span', { class: 'quiet' }, `cosine; probability of the first ${number(clips.probability[row], 'share')}`)),
        el('div', { class: 'answers' }, buttons)) : el('p', {}, 'No answers: no class texts in this run.')),
      times ? times.node : null,
      answers.length && terms.length ? el('section', { class: 'panel' }, el('h3', {}, 'Which heads speak for and against it'), box) : null);
    if (answers.length) show(0);
    return node;
  }

  // All clips, the wrongly answered first.
  function list() {
    const { clips, classes } = RA.main;
    const wrong = (i) => clips.predicted && clips.label[i] !== null && classes[clips.predicted[i]] !== clips.label[i];
    const order = clips.id.map((_, i) => i).sort((a, b) => wrong(b) - wrong(a) || a - b);
    return el('article', {}, el('h2', {}, `${clips.id.length} clips`),
      el('p', { class: 'quiet' }, `${order.filter(wrong).length} of them answered wrongly; those come first.`),
      el('table', { class: 'list' }, el('thead', {}, el('tr', {}, ['clip', 'label', 'first answer', 'probability', 'sound'].map((t) => el('th', { scope: 'col' }, t)))),
        el('tbody', {}, order.map((i) => el('tr', { class: wrong(i) ? 'wrong-row' : '' }, el('td', {}, el('a', { href: `#clip/${i}` }, clips.id[i])), el('td', {}, clips.label[i] || '–'),
          el('td', {}, clips.predicted ? `${classes[clips.predicted[i]]}${wrong(i) ? ' ✕' : ''}` : '–'), el('td', {}, clips.probability ? number(clips.probability[i], 'share') : '–'),
          el('td', {}, clips.sound[i] ? 'yes' : '–'))))));
  }

  RA.views.clip = async (row) => page(await RA.load(`clip/${row}`));
  RA.views.clips = async () => list();
})();
