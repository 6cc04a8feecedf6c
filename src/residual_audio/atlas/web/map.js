// The map: every head a cell, stage by stage, coloured by any number of the run.
(() => {
  const { el } = RA;
  const { number, interval, csv, longName } = RA.format;
  const MODES = { own: 'this run', other: 'the other run', difference: 'difference, same head', aligned: 'difference, most alike head', cka: 'likeness (CKA) to the most alike head' };

  // A metric as it is shown: of this run, of the other one, or their difference.
  function shown(key, mode) {
    const main = RA.main;
    const metric = main.numbers.find((m) => m.key === key) || main.numbers[0];
    if (!main.other || !mode || mode === 'own') return metric;
    const { other } = main;
    if (mode === 'cka') {
      return { ...metric, key: 'cka', label: 'CKA with the most alike head of the other run', values: other.aligned.cka, low: null, high: null, better: 'neither', format: 'number', signed: false };
    }
    const there = other.numbers.find((m) => m.key === metric.key);
    const place = new Map(other.ids.map((id, i) => [id, i]));
    const names = mode === 'aligned' ? other.aligned.best : main.heads.id;
    const theirs = names.map((id) => (there && place.has(id) ? there.values[place.get(id)] : null));
    if (mode === 'other') return { ...metric, label: `${metric.label}, ${other.title}`, values: theirs, low: null, high: null };
    const values = metric.values.map((v, i) => (v === null || theirs[i] === null ? null : v - theirs[i]));
    return { ...metric, label: `${metric.label}: ${main.title} − ${other.title}`, values, low: null, high: null, signed: true, middle: 0, better: 'neither' };
  }

  function modes() {
    const { other } = RA.main;
    if (!other) return [];
    return Object.keys(MODES).filter((m) => (m === 'aligned' || m === 'cka' ? other.aligned : m === 'own' || other.same_heads));
  }

  function chooser(state, change) {
    const groups = new Map();
    for (const m of RA.main.numbers) groups.set(m.group, [...(groups.get(m.group) || []), m]);
    return el('label', { class: 'field' }, 'Colour by ',
      el('select', { id: 'metric', onchange: (event) => change({ m: event.target.value, r: null }) },
        [...groups].map(([group, list]) => el('optgroup', { label: group },
          list.map((m) => el('option', { value: m.key, selected: m.key === state.m }, m.label))))));
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
    return heads.id.map((id, i) => id === text || heads.words[i].some(([w, grey]) => !grey && has(w)) ||
      heads.ends[i].some(([label, n]) => n > 1 && has(label)) || has(heads.preferred && heads.preferred[i]));
  }

  function cells(metric, scale, { range, lit, point, href }) {
    const { heads } = RA.main;
    const stages = new Map();
    heads.id.forEach((id, i) => {
      const stage = heads.stage[i], block = heads.block[i];
      if (!stages.has(stage)) stages.set(stage, new Map());
      if (!stages.get(stage).has(block)) stages.get(stage).set(block, []);
      stages.get(stage).get(block).push(i);
    });
    const widest = Math.max(...[...stages.values()].flatMap((b) => [...b.values()].map((h) => h.length)));
    const grid = el('div', { class: 'map', role: 'group', 'aria-label': `map of ${heads.id.length} heads by ${metric.label}`, style: { '--columns': widest } });
    for (const [stage, blocks] of stages) {
      grid.append(el('div', { class: 'stage-name' }, `stage ${stage}`));
      for (const [block, list] of blocks) {
        grid.append(el('div', { class: 'row' }, el('span', { class: 'block-name' }, `b${block}`), list.map((i) => {
          const value = metric.values[i], colour = scale.colour(value);
          const out = (range && (value === null || value < range[0] || value > range[1])) || (lit && !lit[i]);
          return el('a', { class: `cell${out ? ' out' : ''}${lit && lit[i] ? ' lit' : ''}${colour ? '' : ' none'}`, href: href(heads.id[i]), 'data-id': heads.id[i],
            'aria-label': `${longName(heads.id[i])}: ${number(value, metric.format)}`, style: colour ? { background: colour } : {},
            onmouseenter: () => point(i), onfocus: () => point(i) });
        })));
      }
    }
    return grid;
  }

  // What is known of a head, beside the map.
  function about(i, metric) {
    const { heads, numbers, other } = RA.main, id = heads.id[i];
    const words = heads.words[i].filter(([, grey]) => !grey).slice(0, 4).map(([w]) => w);
    const wanted = ['pr', 'twonn', 'fisher.probe_accuracy', 'ablation_head_direct.d_margin', 'attention.entropy', 'gains.mean_gain'];
    const rows = [metric, ...numbers.filter((m) => wanted.includes(m.key) && m.key !== metric.key)];
    return [
      el('h3', {}, el('a', { href: `#${id}` }, id), el('span', { class: 'quiet' }, ` ${longName(id)}`)),
      el('dl', { class: 'facts' }, rows.map((m, r) => [
        el('dt', { class: r ? '' : 'first' }, m.label),
        el('dd', { class: r ? '' : 'first' }, number(m.values[i], m.format), m.low ? el('small', { class: 'quiet' }, ` ${interval(m, i)}`) : null)])),
      heads.preferred ? el('p', {}, el('span', { class: 'quiet' }, 'moves most for '), heads.preferred[i]) : null,
      words.length ? el('p', {}, el('span', { class: 'quiet' }, 'words '), words.join(' · '))
        : el('p', { class: 'quiet' }, 'no words above chance'),
      other && other.aligned ? el('p', {}, el('span', { class: 'quiet' }, 'most alike there '), `${other.aligned.best[i]} (CKA ${number(other.aligned.cka[i])})`) : null,
    ];
  }

  function save(metric) {
    const { heads } = RA.main;
    const header = ['head', 'stage', 'block', 'index', metric.label, 'low', 'high'];
    const rows = heads.id.map((id, i) => [id, heads.stage[i], heads.block[i], heads.head[i], metric.values[i], metric.low && metric.low[i], metric.high && metric.high[i]]);
    RA.save('heads.csv', csv(header, rows), 'text/csv');
  }

  function view(state, change) {
    const metric = shown(state.m, state.mode), range = state.r;
    const scale = RA.colour.scale(metric.values, metric.signed, metric.middle);
    const lit = fitting(state.q);
    const card = el('div', { class: 'about', 'aria-live': 'off' }, el('p', { class: 'quiet' }, 'Point at a head to see its numbers; click to open its page. Arrow keys walk, / searches.'));
    const point = (i) => card.replaceChildren(...[about(i, metric)].flat(3).filter(Boolean));
    const tab = (key, label) => el('button', { type: 'button', class: 'tab', 'aria-pressed': String(state.view === key), onclick: () => change({ view: key }) }, label);
    const first = lit ? lit.findIndex(Boolean) : -1;
    if (first >= 0) point(first);
    const compare = modes();
    const drawing = state.view === 'map'
      ? cells(metric, scale, { range, lit, point, href: (id) => `#${id}` })
      : RA.scatter.view(state, metric, scale, { range, lit, point, change });
    return el('section', { class: 'map-view', 'aria-label': 'Map of heads' },
      el('div', { class: 'toolbar' },
        el('h2', {}, `${RA.main.heads.id.length} heads`), chooser(state, change),
        compare.length ? el('label', { class: 'field' }, 'Show ', el('select', { id: 'mode', onchange: (e) => change({ mode: e.target.value, r: null }) },
          compare.map((m) => el('option', { value: m, selected: m === (state.mode || 'own') }, MODES[m])))) : null,
        el('span', { class: 'tabs' }, tab('map', 'map'), RA.main.layout ? tab('plane', 'fingerprints') : null, tab('pair', 'two numbers')),
        el('button', { type: 'button', class: 'small', onclick: () => save(metric) }, 'CSV')),
      lit ? el('p', { class: 'found', role: 'status' }, `${lit.filter(Boolean).length} heads fit “${state.q}”. `,
        el('button', { type: 'button', class: 'small', onclick: () => change({ q: null }) }, 'clear')) : null,
      el('div', { class: 'beside' }, el('div', { class: 'drawing' }, drawing),
        el('aside', {}, RA.chart.legend(scale, metric), RA.chart.histogram(metric.values, scale, metric, range, (r) => change({ r })),
          metric.about ? el('p', { class: 'quiet small-text' }, metric.about) : null, card)));
  }

  RA.map = { view, cells, shown, fitting, begins };
})();
