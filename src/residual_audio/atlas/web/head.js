// The page of a head.
(() => {
  const { el } = RA;
  const { number, interval, longName, csv } = RA.format;

  function neighbours(id) {
    const { id: ids } = RA.main.heads, i = ids.indexOf(id);
    return [ids[(i + ids.length - 1) % ids.length], ids[(i + 1) % ids.length]];
  }

  function words(found) {
    if (!found) return null;
    if (!found.texts.length) return el('p', { class: 'quiet' }, 'no words');
    return el('div', { class: found.at_chance ? 'words chance' : 'words' },
      el('ul', {}, found.texts.map((text) => el('li', {}, text))),
      el('p', { class: 'quiet small-text' }, found.at_chance ? 'at chance: ' : '',
        `fit ${number(found.fit_z)} σ, coherence ${number(found.coherence_z)} σ above random directions`));
  }

  RA.wordsOf = words;

  function end(part, sign) {
    const label = sign > 0 ? '+ end' : '− end';
    return el('div', { class: 'end' }, el('h4', {}, label), words(part.words),
      el('div', { class: 'clips' }, part.clips.map((clip) => RA.audio.card(clip.row,
        { response: clip.response, sign, note: `${number(clip.score)} σ` }))));
  }

  function component(part, c, id) {
    const few = part.classes.length > 12 ? [...part.classes.slice(0, 5), ...part.classes.slice(-5)] : part.classes;
    const list = el('div', {}, RA.chart.strips(few, 'classes along this component'));
    return el('section', { class: 'component panel', 'aria-label': `component ${c + 1}` },
      el('h3', {}, `Component ${c + 1}`, el('span', { class: 'quiet' }, ` ${number(part.share, 'share')} of what it adds to the latent`),
        RA.main.move ? el('a', { class: 'action', href: `#move?${id}=1${',1'.repeat(c)},0` }, 'switch it off') : null),
      el('div', { class: 'ends' }, end(part.ends['-'], -1), end(part.ends['+'], 1)),
      part.classes.length ? el('details', { open: c === 0 }, el('summary', {}, 'Classes along it'),
        list, few.length < part.classes.length ? el('button', { type: 'button', class: 'small', onclick: (event) => {
          list.replaceChildren(RA.chart.strips(part.classes, 'classes along this component'));
          event.target.remove();
        } }, `all ${part.classes.length} classes`) : null) : null);
  }

  function facts(i) {
    const groups = new Map();
    for (const m of RA.main.numbers) {
      if (m.values[i] !== null) groups.set(m.group, [...(groups.get(m.group) || []), m]);
    }
    return el('details', { class: 'panel' }, el('summary', {}, 'All numbers of this head'),
      el('div', { class: 'columns' }, [...groups].map(([group, list]) => el('div', {}, el('h4', {}, group),
        el('dl', { class: 'facts' }, list.map((m) => [el('dt', {}, m.label), el('dd', {}, number(m.values[i], m.format),
          m.low ? el('small', { class: 'quiet' }, ` ${interval(m, i)}`) : null)]))))));
  }

  function cost(piece, i) {
    const removing = RA.main.numbers.filter((m) => m.group === 'removing it');
    if (!removing.length) return null;
    const rows = piece.by_class ? piece.by_class.rows : [];
    const few = rows.length > 10 ? [...rows.slice(0, 5), ...rows.slice(-5)] : rows;
    return el('section', { class: 'panel' }, el('h3', {}, 'What removing it costs'),
      el('dl', { class: 'facts' }, removing.map((m) => [el('dt', {}, m.label),
        el('dd', {}, number(m.values[i], m.format), el('small', { class: 'quiet' }, ` ${interval(m, i)}`))])),
      few.length ? [el('h4', {}, 'Margin by class ', el('span', { class: 'quiet' }, `(${piece.by_class.method})`)),
        RA.chart.bars(few, { label: 'change of the margin by class' })] : null);
  }

  function gains(list) {
    const known = list.filter((v) => v !== null);
    if (!known.length) return null;
    if (known.every((v) => Math.abs(v - 1) < 1e-6)) {
      return el('section', { class: 'panel' }, el('h3', {}, 'Fitted gain by fold'),
        el('p', {}, `1 in ${known.length === 1 ? 'the one fold' : `all ${known.length} folds`}: the fit left this head as it is.`));
    }
    return el('section', { class: 'panel' }, el('h3', {}, 'Fitted gain by fold'),
      RA.chart.bars(list.map((v, i) => [`fold ${i + 1}`, v === null ? 0 : v - 1, v === null ? 'none' : `gain ${number(v)}`]), { label: 'fitted gain less one, by fold' }),
      el('p', { class: 'quiet small-text' }, 'mean gain of its components, less 1: right of the line is amplified'));
  }

  function save(piece) {
    const rows = piece.components.flatMap((part, c) => ['-', '+'].flatMap((sign) => part.ends[sign].clips.map((clip) =>
      [piece.id, c + 1, sign, clip.score, RA.main.clips.id[clip.row], RA.main.clips.label[clip.row], (part.ends[sign].words || { texts: [] }).texts.join(' | ')])));
    RA.save(`${piece.id}.csv`, csv(['head', 'component', 'end', 'score', 'clip', 'label', 'words'], rows), 'text/csv');
  }

  function page(piece) {
    const { heads, numbers, missing } = RA.main, i = heads.id.indexOf(piece.id), [before, after] = neighbours(piece.id);
    const key = ['pr', 'twonn', 'fisher.probe_accuracy', 'ablation_head_direct.d_margin'];
    const chips = numbers.filter((m) => key.includes(m.key)).map((m) => el('div', { class: 'chip' },
      el('strong', {}, number(m.values[i], m.format)), el('span', {}, m.label), m.low ? el('small', { class: 'quiet' }, interval(m, i)) : null));
    return el('article', { class: 'head-page' },
      el('div', { class: 'toolbar' },
        el('a', { class: 'small button', href: `#${before}`, 'aria-label': `previous head, ${before}` }, '←'),
        el('h2', {}, piece.id, el('span', { class: 'quiet' }, ` ${longName(piece.id)}`)),
        el('a', { class: 'small button', href: `#${after}`, 'aria-label': `next head, ${after}` }, '→'),
        RA.main.move ? el('a', { class: 'button', href: `#move?${piece.id}=0` }, 'Move it') : null,
        el('label', { class: 'field' }, el('input', { type: 'checkbox', checked: true, id: 'overlay', onchange: (event) =>
          document.getElementById('content').classList.toggle('bare', !event.target.checked) }), ' show where it responds'),
        el('button', { type: 'button', class: 'small', onclick: () => save(piece) }, 'CSV')),
      el('div', { class: 'chips' }, chips,
        el('div', { class: 'chip wide' }, RA.chart.spectrum(piece.shares, RA.main.n_components), el('span', {}, `spectrum: ${piece.n_varying} components vary`))),
      missing.length ? el('p', { class: 'missing' }, 'Missing here: ', missing.join('; '), '.') : null,
      el('p', { class: 'quiet' }, 'Orange: where in time (right) and frequency (up) the head pushes a clip towards this end, strongest where it is deepest; blue: away from it. All places of a picture sum to the clip’s place on the component. Click a picture, or press space, to listen.'),
      piece.components.length ? piece.components.map((part, c) => component(part, c, piece.id))
        : el('p', {}, 'This head is constant over these clips: it has no components.'),
      el('div', { class: 'panels' }, cost(piece, i),
        piece.attention ? el('section', { class: 'panel' }, el('h3', {}, 'Attention'), RA.attention.view(piece.attention)) : null,
        piece.nearest ? el('section', { class: 'panel' }, el('h3', {}, 'Nearest heads ', el('span', { class: 'quiet' }, `by ${piece.nearest.how.replace('_', ' ').replace('cka', 'CKA')}`)),
          RA.chart.bars(piece.nearest.rows.map(([id, v]) => [id, v, longName(id), `#${id}`]), { label: 'nearest heads', limit: 1 })) : null,
        piece.gains ? gains(piece.gains) : null),
      facts(i));
  }

  RA.views.head = async (id) => page(await RA.load(`head/${id}`));
})();
