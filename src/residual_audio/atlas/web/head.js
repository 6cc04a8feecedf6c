// The page of a head.
(() => {
  const { el } = RA;
  const { number, interval, longName, csv } = RA.format;
  const CHIPS = ['pr', 'twonn', 'fisher.probe_accuracy', 'ablation_head_direct.d_margin'];

  function neighbours(id) {
    const { id: ids } = RA.main.heads,
      i = ids.indexOf(id);
    return [ids[(i + ids.length - 1) % ids.length], ids[(i + 1) % ids.length]];
  }

  function words(found) {
    if (!found) return null;
    if (!found.texts.length) return el('p', { class: 'quiet' }, 'no words');
    const fit = `fit ${number(found.fit_z)} σ, coherence ${number(found.coherence_z)} σ above random directions`;
    return el(
      'div',
      { class: found.at_chance ? 'words chance' : 'words' },
      el(
        'ul',
        {},
        found.texts.map((text) => el('li', {}, text)),
      ),
      el('p', { class: 'quiet small-text' }, found.at_chance ? `at chance: ${fit}` : fit),
    );
  }

  RA.wordsOf = words;

  // One end of a component, in three rows that the other end shares: name, words, clips.
  function end(part, sign) {
    const card = (clip) =>
      RA.audio.card(clip.row, {
        response: clip.response,
        sign,
        note: `${RA.format.minus(clip.score.toFixed(2))} σ`,
      });
    return el(
      'div',
      { class: 'end' },
      el('h4', {}, sign > 0 ? '+ end' : '− end'),
      words(part.words) || el('div', {}),
      el('div', { class: 'clips' }, part.clips.map(card)),
    );
  }

  function classes(part, c) {
    if (!part.classes.length) return null;
    const label = 'classes along this component';
    const list = el('div', {}, RA.chart.strips(part.classes, label));
    const hidden = RA.chart.outermost(part.classes, 5)[2];
    const more = (event) => {
      list.replaceChildren(RA.chart.strips(part.classes, label, { all: true }));
      event.target.remove();
    };
    return el(
      'details',
      { open: c === 0 },
      el('summary', {}, 'Classes along it'),
      el(
        'p',
        { class: 'quiet small-text' },
        'Dot: mean of the class; bar: the middle 80% of its clips; line: the mean of all clips.',
      ),
      list,
      hidden
        ? el(
            'button',
            { type: 'button', class: 'small', onclick: more },
            `all ${part.classes.length} classes`,
          )
        : null,
    );
  }

  function component(part, c, id) {
    return el(
      'section',
      { class: 'component panel', 'aria-label': `component ${c + 1}` },
      el(
        'h3',
        {},
        `Component ${c + 1}`,
        el(
          'span',
          { class: 'quiet' },
          ` ${number(part.share, 'share')} of the variance of what it adds to the latent`,
        ),
        RA.main.move
          ? el('a', { class: 'action', href: `#move?${id}=1${',1'.repeat(c)},0` }, 'switch it off')
          : null,
      ),
      el('div', { class: 'ends' }, end(part.ends['-'], -1), end(part.ends['+'], 1)),
      classes(part, c),
    );
  }

  function facts(i) {
    const groups = new Map();
    for (const m of RA.main.numbers) {
      if (m.values[i] !== null) groups.set(m.group, [...(groups.get(m.group) || []), m]);
    }
    const fact = (m) => [
      el('dt', {}, m.label),
      el(
        'dd',
        {},
        number(m.values[i], m.format),
        m.low ? el('small', { class: 'quiet' }, ` ${interval(m, i)}`) : null,
      ),
    ];
    return el(
      'details',
      { class: 'panel' },
      el('summary', {}, 'All numbers of this head'),
      el(
        'div',
        { class: 'columns' },
        [...groups].map(([group, list]) =>
          el('div', {}, el('h4', {}, group), el('dl', { class: 'facts' }, list.map(fact))),
        ),
      ),
    );
  }

  // "Change of margin without it (direct path only)" → ["margin", "direct path only"]
  const parted = (m) =>
    /^Change of (.+) without it \((.+)\)$/.exec(m.label)?.slice(1) || [m.label, ''];

  function cost(piece, i) {
    const removing = RA.main.numbers.filter((m) => m.group === 'removing it');
    if (!removing.length) return null;
    const ways = new Map();
    for (const m of removing) ways.set(parted(m)[1], [...(ways.get(parted(m)[1]) || []), m]);
    const fact = (m) => [
      el('dt', { title: m.about }, `change of ${parted(m)[0]}`),
      el(
        'dd',
        {},
        number(m.values[i], m.format),
        el('small', { class: 'quiet' }, ` ${interval(m, i)}`),
      ),
    ];
    const rows = (piece.by_class ? piece.by_class.rows : []).map(([name, value, low, high]) => [
      name,
      value,
      null,
      null,
      low === undefined ? null : [low, high],
    ]);
    const [first, last, hidden] = RA.chart.outermost(rows, 5);
    const list = rows.length
      ? RA.chart.bars([...first, ...last], { label: 'change of the margin by class' })
      : null;
    if (hidden) list.children[first.length - 1].after(RA.chart.between(hidden, 'classes'));
    const spread = rows.some((r) => r[4] && r[4][0] !== null);
    const how = piece.by_class
      ? piece.by_class.method.replace('_', ' ').replace('direct', 'direct path')
      : '';
    return el(
      'section',
      { class: 'panel' },
      el('h3', {}, 'What removing it costs'),
      [...ways].map(([how, list]) => [
        el('h4', {}, how),
        el('dl', { class: 'facts' }, list.map(fact)),
      ]),
      list
        ? [
            el('h4', {}, 'Change of the margin by class ', el('span', { class: 'quiet' }, how)),
            list,
            el(
              'p',
              { class: 'quiet small-text' },
              `Left (blue): this class leans on the head.${spread ? ' Lines: 95% intervals.' : ''}`,
            ),
          ]
        : null,
    );
  }

  function gains(list) {
    const known = list.filter((v) => v !== null);
    if (!known.length) return null;
    const panel = (...inside) =>
      el('section', { class: 'panel' }, el('h3', {}, 'Fitted gain by fold'), inside);
    if (known.every((v) => Math.abs(v - 1) < 1e-6)) {
      const folds = known.length === 1 ? 'the one fold' : `all ${known.length} folds`;
      return panel(el('p', {}, `1 in ${folds}: the fit left this head as it is.`));
    }
    const row = (v, i) => [
      `fold ${i + 1}`,
      v === null ? 0 : v - 1,
      v === null ? 'none' : `gain ${number(v)}`,
    ];
    return panel(
      RA.chart.bars(list.map(row), { label: 'fitted gain less one, by fold' }),
      el(
        'p',
        { class: 'quiet small-text' },
        'Mean gain of its components, less 1: right of the line (orange) is amplified.',
      ),
    );
  }

  function nearest({ how, rows }) {
    const by = how.replace('_', ' ').replace('cka', 'CKA');
    return el(
      'section',
      { class: 'panel' },
      el('h3', {}, 'Nearest heads ', el('span', { class: 'quiet' }, `by ${by}`)),
      RA.chart.bars(
        rows.map(([id, v]) => [id, v, longName(id), `#${id}`]),
        { label: 'nearest heads', limit: 1 },
      ),
      el(
        'p',
        { class: 'quiet small-text' },
        '1: alike in all that is measured, 0: nothing in common.',
      ),
    );
  }

  function save(piece) {
    const { clips } = RA.main;
    const rows = piece.components.flatMap((part, c) =>
      ['-', '+'].flatMap((sign) => {
        const texts = (part.ends[sign].words || { texts: [] }).texts.join(' | ');
        return part.ends[sign].clips.map((clip) => [
          piece.id,
          c + 1,
          sign,
          clip.score,
          clips.id[clip.row],
          clips.label[clip.row],
          texts,
        ]);
      }),
    );
    RA.save(
      `${piece.id}.csv`,
      csv(['head', 'component', 'end', 'score', 'clip', 'label', 'words'], rows),
      'text/csv',
    );
  }

  // A number of this head, and where it stands among all heads.
  function chip(m, i) {
    const known = m.values.filter((v) => v !== null),
      above = known.filter((v) => v > m.values[i]).length;
    const standing = m.values[i] === null ? '' : `${above + 1} of ${known.length} from the top`;
    return el(
      'div',
      { class: 'chip' },
      el('strong', {}, number(m.values[i], m.format)),
      el('span', {}, m.label),
      m.low && interval(m, i) ? el('small', { class: 'quiet' }, interval(m, i)) : null,
      el('small', { class: 'quiet' }, standing),
    );
  }

  function toolbar(piece) {
    const [before, after] = neighbours(piece.id);
    const overlay = (event) =>
      document.getElementById('content').classList.toggle('bare', !event.target.checked);
    document.getElementById('content').classList.remove('bare');
    return el(
      'div',
      { class: 'toolbar' },
      el(
        'a',
        { class: 'small button', href: `#${before}`, 'aria-label': `previous head, ${before}` },
        '←',
      ),
      el('h2', {}, piece.id, el('span', { class: 'quiet' }, ` ${longName(piece.id)}`)),
      el(
        'a',
        { class: 'small button', href: `#${after}`, 'aria-label': `next head, ${after}` },
        '→',
      ),
      RA.main.move ? el('a', { class: 'button', href: `#move?${piece.id}=0` }, 'Move it') : null,
      el(
        'label',
        { class: 'field' },
        el('input', { type: 'checkbox', checked: true, id: 'overlay', onchange: overlay }),
        ' show where it responds',
      ),
      el('button', { type: 'button', class: 'small', onclick: () => save(piece) }, 'CSV'),
    );
  }

  const LEGEND = [
    'Where in time (right) and frequency (up) the head pushes a clip ',
    ['plus', 'towards this end'],
    ' or ',
    ['minus', 'away from it'],
    '; all places of a picture sum to the clip’s place on the component. Click a picture, or press space, to listen.',
  ];

  function page(piece) {
    const { heads, numbers, missing } = RA.main,
      i = heads.id.indexOf(piece.id);
    const lacking = missing.filter((line) => !line.startsWith('no answers'));
    const held = piece.components.reduce((sum, part) => sum + part.share, 0);
    const spectrum = el(
      'div',
      { class: 'chip wide' },
      RA.chart.spectrum(piece.shares, RA.main.n_components),
      el('span', {}, `Spectrum: ${piece.n_varying} components vary`),
      piece.components.length
        ? el(
            'small',
            { class: 'quiet' },
            `the first ${piece.components.length}, below, hold ${number(held, 'share')} of the variance`,
          )
        : null,
    );
    const legend = LEGEND.map((part) =>
      Array.isArray(part) ? el('span', { class: `mark ${part[0]}` }, part[1]) : part,
    );
    return el(
      'article',
      { class: 'head-page' },
      toolbar(piece),
      el(
        'div',
        { class: 'chips' },
        numbers.filter((m) => CHIPS.includes(m.key)).map((m) => chip(m, i)),
        spectrum,
      ),
      lacking.length
        ? el(
            'p',
            { class: 'missing' },
            'Missing here: ',
            RA.answer.said(lacking.join('; '), false),
            '.',
          )
        : null,
      piece.components.length && RA.main.seconds ? el('p', { class: 'quiet' }, legend) : null,
      piece.components.length
        ? piece.components.map((part, c) => component(part, c, piece.id))
        : el('p', {}, 'This head is constant over these clips: it has no components.'),
      el(
        'div',
        { class: 'panels' },
        cost(piece, i),
        piece.attention
          ? el(
              'section',
              { class: 'panel' },
              el('h3', {}, 'Attention'),
              RA.attention.view(piece.attention),
            )
          : null,
        piece.nearest ? nearest(piece.nearest) : null,
        piece.gains ? gains(piece.gains) : null,
      ),
      facts(i),
    );
  }

  RA.views.head = async (id) => page(await RA.load(`head/${id}`));
})();
