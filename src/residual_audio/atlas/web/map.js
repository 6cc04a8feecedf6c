// The map: every head a cell, stage by stage, coloured by any number of the run.
(() => {
  const { el } = RA;
  const { number, interval, csv, longName } = RA.format;
  const { shown, modes, headsOf, comparison, whyNot } = RA.twoRuns;
  const KNOWN = [
    'pr',
    'twonn',
    'fisher.probe_accuracy',
    'ablation_head_direct.d_margin',
    'attention.entropy',
    'gains.mean_gain',
  ];

  function chooser(state, change) {
    const groups = new Map();
    for (const m of RA.main.numbers) groups.set(m.group, [...(groups.get(m.group) || []), m]);
    const option = (m) => el('option', { value: m.key, selected: m.key === state.m }, m.label);
    return el(
      'label',
      { class: 'field' },
      'Colour by ',
      el(
        'select',
        { id: 'metric', onchange: (event) => change({ m: event.target.value, r: null }) },
        [...groups].map(([group, list]) => el('optgroup', { label: group }, list.map(option))),
      ),
    );
  }

  // Whether a text has a word that begins with what is looked for: "rain" is not in "train".
  function begins(text) {
    const letters = text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    const found = new RegExp(`(^|[^\\p{L}\\p{N}])${letters}`, 'iu');
    return (t) => Boolean(t) && found.test(t);
  }

  // Heads whose words, preferred class or end clips hold the words that are looked for.
  function fitting(query) {
    const text = (query || '').trim().toLowerCase();
    if (!text) return null;
    const { heads } = RA.main;
    const has = begins(text);
    return heads.id.map(
      (id, i) =>
        id === text ||
        heads.words[i].some(([w, grey]) => !grey && has(w)) ||
        heads.ends[i].some(([label, n]) => n > 1 && has(label)) ||
        has(heads.preferred && heads.preferred[i]),
    );
  }

  // Stage → block → numbers of its heads, in order.
  function floors(heads) {
    const stages = new Map();
    heads.id.forEach((_, i) => {
      const stage = heads.stage[i],
        block = heads.block[i];
      if (!stages.has(stage)) stages.set(stage, new Map());
      if (!stages.get(stage).has(block)) stages.get(stage).set(block, []);
      stages.get(stage).get(block).push(i);
    });
    return stages;
  }

  // Numbers of heads above the columns: each, or as many as can be read.
  function columnNames(n, widest) {
    const step = widest > 20 ? 4 : widest > 12 ? 2 : 1;
    const name = (h) => el('span', {}, h % step ? '' : `h${h}`);
    return el(
      'div',
      { class: 'row column-names', 'aria-hidden': 'true' },
      el('span', {}),
      Array.from({ length: n }, (_, h) => name(h)),
    );
  }

  function cells(metric, scale, { range, lit, point, href, heads = RA.main.heads, plain }) {
    const stages = floors(heads);
    const widest = Math.max(
      ...[...stages.values()].flatMap((b) => [...b.values()].map((h) => h.length)),
    );
    const grid = el('div', {
      class: widest > 20 ? 'map' : 'map roomy',
      role: 'group',
      style: { '--columns': widest },
      'aria-label': `map of ${heads.id.length} heads by ${metric.label}`,
    });
    const cell = (i) => {
      const value = metric.values[i],
        colour = scale.colour(value),
        id = heads.id[i],
        to = href(id);
      const outside = range && (value === null || value < range[0] || value > range[1]);
      const kinds = [
        'cell',
        outside || (lit && !lit[i]) ? 'out' : '',
        lit && lit[i] ? 'lit' : '',
        colour ? '' : 'none',
      ];
      return el(to ? 'a' : 'span', {
        class: kinds.filter(Boolean).join(' '),
        href: to,
        'data-id': id,
        role: to ? null : 'img',
        tabindex: to ? null : 0,
        'aria-label': `${longName(id)}: ${number(value, metric.format)}`,
        style: colour ? { background: colour } : {},
        onmouseenter: () => point(i),
        onfocus: () => point(i),
      });
    };
    for (const [stage, blocks] of stages) {
      const most = Math.max(...[...blocks.values()].map((h) => h.length));
      const size = `${blocks.size} block${blocks.size > 1 ? 's' : ''} of ${most} heads`;
      const row = ([block, list]) =>
        el(
          'div',
          { class: 'row' },
          el('span', { class: 'block-name' }, `b${block}`),
          list.map(cell),
        );
      grid.append(
        el(
          'div',
          { class: 'stage', style: { '--heads': most } },
          stages.size > 1
            ? el(
                'div',
                { class: 'stage-name', title: size },
                `stage ${stage}`,
                el('span', {}, plain ? '' : ` ${blocks.size} × ${most}`),
              )
            : null,
          plain ? null : columnNames(most, widest),
          [...blocks].map(row),
        ),
      );
    }
    return grid;
  }

  // What is known of a head, beside the map.
  function about(i, metric, heads) {
    const { numbers, other } = RA.main,
      id = heads.id[i],
      own = heads === RA.main.heads;
    const known = (own ? numbers : other.numbers).filter(
      (m) => KNOWN.includes(m.key) && m.key !== metric.key,
    );
    const words = own
      ? heads.words[i]
          .filter(([, grey]) => !grey)
          .slice(0, 4)
          .map(([w]) => w)
      : [];
    const fact = (m, r) => [
      el('dt', { class: r ? '' : 'first' }, m.label),
      el(
        'dd',
        { class: r ? '' : 'first' },
        number(m.values[i], m.format),
        m.low ? el('small', { class: 'quiet' }, ` ${interval(m, i)}`) : null,
      ),
    ];
    const line = (label, text) => el('p', {}, el('span', { class: 'quiet' }, `${label} `), text);
    return [
      el(
        'h3',
        {},
        own ? el('a', { href: `#${id}` }, id) : id,
        el('span', { class: 'quiet' }, ` ${longName(id)}`),
      ),
      el('dl', { class: 'facts' }, [metric, ...known].map(fact)),
      own && heads.preferred ? line('moves most for', heads.preferred[i]) : null,
      words.length
        ? line('words', words.join(' · '))
        : own
          ? el('p', { class: 'quiet' }, 'no words above chance')
          : null,
      own && other && other.aligned
        ? line('most alike there', `${other.aligned.best[i]} (CKA ${number(other.aligned.cka[i])})`)
        : null,
    ];
  }

  // Before a head is pointed at: the outermost heads of the metric.
  function outermost(metric, heads, href) {
    const order = heads.id
      .map((_, i) => i)
      .filter((i) => metric.values[i] !== null)
      .sort((a, b) => metric.values[a] - metric.values[b]);
    const list = (title, rows) =>
      el(
        'div',
        {},
        el('h4', {}, title),
        el(
          'ol',
          {},
          rows.map((i) =>
            el(
              'li',
              {},
              href(heads.id[i]) ? el('a', { href: href(heads.id[i]) }, heads.id[i]) : heads.id[i],
              el('span', {}, number(metric.values[i], metric.format)),
            ),
          ),
        ),
      );
    const ends =
      order.length > 9
        ? [list('lowest', order.slice(0, 5)), list('highest', order.slice(-5).reverse())]
        : [];
    return [
      el(
        'p',
        { class: 'quiet' },
        'Point at a head to see its numbers; click to open its page. Arrow keys walk, / searches.',
      ),
      el('div', { class: 'outermost' }, ends),
    ];
  }

  function save(metric, heads) {
    const header = ['head', 'stage', 'block', 'index', metric.label, 'low', 'high'];
    const rows = heads.id.map((id, i) => [
      id,
      heads.stage[i],
      heads.block[i],
      heads.head[i],
      metric.values[i],
      metric.low && metric.low[i],
      metric.high && metric.high[i],
    ]);
    RA.save('heads.csv', csv(header, rows), 'text/csv');
  }

  function view(state, change) {
    const mode = modes().includes(state.mode) ? state.mode : 'own';
    const metric = shown(state.m, mode),
      range = state.r,
      heads = headsOf(mode);
    const scale = RA.colour.scale(metric.values, metric.signed, metric.middle);
    const lit = mode === 'other' ? null : fitting(state.q);
    const href = mode === 'other' ? () => null : (id) => `#${id}`;
    const card = el('div', { class: 'about', 'aria-live': 'off' }, outermost(metric, heads, href));
    const point = (i) => card.replaceChildren(...about(i, metric, heads).flat(3).filter(Boolean));
    const tab = (key, label) =>
      el(
        'button',
        {
          type: 'button',
          class: 'tab',
          'aria-pressed': String(state.view === key),
          onclick: () => change({ view: key }),
        },
        label,
      );
    const first = lit ? lit.findIndex(Boolean) : -1;
    if (first >= 0) point(first);
    const drawing =
      state.view === 'map' || mode === 'other'
        ? cells(metric, scale, { range, lit, point, href, heads })
        : RA.scatter.view(state, metric, scale, { range, lit, point, change });
    const n = lit ? lit.filter(Boolean).length : 0;
    return el(
      'section',
      { class: 'map-view', 'aria-label': 'Map of heads' },
      el(
        'div',
        { class: 'toolbar' },
        el('h2', {}, `${heads.id.length} heads`),
        chooser(state, change),
        comparison(state, change),
        el(
          'span',
          { class: 'tabs' },
          tab('map', 'map'),
          RA.main.layout ? tab('plane', 'fingerprints') : null,
          tab('pair', 'two numbers'),
        ),
        el('button', { type: 'button', class: 'small', onclick: () => save(metric, heads) }, 'CSV'),
      ),
      whyNot(),
      lit
        ? el(
            'p',
            { class: 'found', role: 'status' },
            n
              ? `${n} heads fit “${state.q}”: by a word of theirs, the clips at their ends, ` +
                  'or the class that moves them most. '
              : `No head fits “${state.q}”. `,
            el(
              'button',
              { type: 'button', class: 'small', onclick: () => change({ q: null }) },
              'clear',
            ),
          )
        : null,
      el(
        'div',
        { class: 'beside' },
        el('div', { class: 'drawing' }, drawing),
        el(
          'aside',
          {},
          RA.chart.legend(scale, metric),
          RA.chart.histogram(metric.values, scale, metric, range, (r) => change({ r })),
          metric.about ? el('p', { class: 'quiet small-text' }, metric.about) : null,
          card,
        ),
      ),
    );
  }

  RA.map = { view, cells, shown, fitting, begins };
})();
