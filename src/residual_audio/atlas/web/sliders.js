// The controls: presets, gains of stages, blocks, a head and its components, and what keeps them.
(() => {
  const { el } = RA;
  const short = (name) => name.replace('.attention', '');

  // What the model does when nothing is moved.
  const start = () => (RA.main.answered_by === 'centroids' ? 'the model as it is' : 'zero-shot');

  const ruleOf = (key) => key.replace(/^rule-/, '');
  const isRule = (key) => key.startsWith('rule-');

  // Python that gives these gains and what they come to on the clips of the run.
  function python(state, accuracy) {
    const { run, model, n_clips: n } = RA.main,
      name = JSON.stringify(run);
    const rules = Object.fromEntries(
      Object.entries(state.presets)
        .filter(([key]) => isRule(key))
        .map(([key, v]) => [ruleOf(key), v]),
    );
    const asked = Object.keys(rules).length ? `, rules=${JSON.stringify(rules)}` : '';
    const held = 'fitted' in state.presets;
    const gains = held
      ? [
          '# each clip was shown under the gains that were fitted without its fold: a file a fold',
          `gains = ra.load_gains(${JSON.stringify(`${run}/gains/direct-fold-1`)})`,
        ]
      : [`gains = slider_gains(${name}, ${JSON.stringify(state.gains)}${asked})`];
    const shown =
      RA.main.move.n_rows < n
        ? 'the page shows fewer clips'
        : `the page shows ${accuracy.toFixed(4)}`;
    return [
      'import residual_audio as ra',
      'from residual_audio.surface.gain_studies import Studied, slider_gains, transferred',
      '',
      `# ${name} is the folder of the run, from where you are`,
      ...gains,
      `print(transferred(Studied(${name}), gains)["top1_after"])${held ? '' : `  # ${shown}`}`,
      '',
      `# model = ra.load_model(${JSON.stringify(model.name)})`,
      '# model.embed_audio(["a.wav"], edit=gains)',
      '',
    ].join('\n');
  }

  function copy(button, text) {
    const area = el('textarea', { class: 'hidden-text', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.dataset.copied = text;
    button.textContent = 'Copied';
    RA.say('copied');
    setTimeout(() => {
      button.textContent = 'Copy as Python';
    }, 1500);
  }

  function slider(label, value, change, note) {
    const write = (v) => RA.format.minus(v.toFixed(2));
    const out = el('output', {}, write(value));
    const moved = (event) => {
      const now = Number(event.target.value);
      out.textContent = write(now);
      change(now);
    };
    const input = el('input', {
      type: 'range',
      min: -1,
      max: 3,
      step: 0.05,
      value,
      'aria-label': `gain of ${label}`,
      list: 'gains',
      oninput: moved,
    });
    return el('label', { class: 'slider', title: note || null }, el('span', {}, label), input, out);
  }

  function presets(live, head) {
    const { move } = RA.main,
      still = !Object.keys(live.gains).length && !Object.keys(live.presets).length;
    const button = (href, label, about, on) =>
      el(
        'a',
        {
          class: on ? 'button on' : 'button',
          'aria-current': on ? 'true' : null,
          href,
          title: about,
        },
        label,
      );
    const off = Object.keys(move.stages)
      .map((s) => `${s}=0`)
      .join('&');
    const named = start() === 'zero-shot' ? 'Zero-shot' : 'As it is';
    const given = (p) => button(`#move?p=${p.key}:1`, p.label, p.about, p.key in live.presets);
    return el(
      'div',
      { class: 'presets' },
      button('#move', named, 'all gains 1', still),
      move.presets.map(given),
      button(`#move?${head}=0`, `${head} off`, `only the mean of ${head} stays`, false),
      button(
        `#move?${off}`,
        'All heads off',
        'only the means of the heads, the MLPs and the patches stay',
        false,
      ),
    );
  }

  function keeping(live, accuracy) {
    const held = () => 'fitted' in live.presets;
    const nothing = () => !Object.keys(live.gains).length && !Object.keys(live.presets).length;
    const note = el('p', { class: 'quiet small-text', role: 'status' });
    const save = async () => {
      note.textContent = '';
      if (held())
        note.textContent = `Held-out gains are a file a fold, and lie in ${RA.main.run}/gains already.`;
      else if (nothing()) note.textContent = 'All gains are 1: there is nothing to keep.';
      else {
        RA.save('sliders.safetensors', await RA.gainsFile.make(live), 'application/octet-stream');
        note.textContent = 'Use it as it is: residual-audio evaluate … --gains sliders.safetensors';
      }
    };
    return [
      el(
        'div',
        { class: 'presets' },
        el(
          'button',
          { type: 'button', onclick: (event) => copy(event.target, python(live, accuracy())) },
          'Copy as Python',
        ),
        el('button', { type: 'button', onclick: save }, 'Save as a gains file'),
      ),
      note,
    ];
  }

  // All controls; `changed` is called with the state at every step, `accuracy()` is what is shown.
  function build(state, changed, accuracy) {
    const { move, heads, n_components: n } = RA.main,
      live = { gains: structuredClone(state.gains), presets: { ...state.presets } };
    const head =
      state.head ||
      Object.keys(state.gains).find((name) => heads.id.includes(name)) ||
      heads.id[heads.id.length - 1];
    const set = (name, place, value) => {
      const list = live.gains[name] || [1];
      while (list.length <= place) list.push(1);
      list[place] = value;
      live.gains[name] = list;
      if (list.every((v) => v === 1)) delete live.gains[name];
      changed(live);
    };
    const value = (name, place) => (live.gains[name] || [])[place] ?? 1;
    const whole = (name, label) =>
      slider(label, value(name, 0), (v) => set(name, 0, v), 'its mean over clips stays');
    const stages = Object.keys(move.stages),
      blocks = stages.flatMap((s) => move.stages[s]);
    const others = Object.keys(live.gains).filter(
      (name) => heads.id.includes(name) && name !== head,
    );
    const strengths = Object.entries(live.presets).map(([key, amount]) =>
      slider(`strength of ${ruleOf(key)}`, amount, (v) => {
        live.presets[key] = v;
        changed(live);
      }),
    );
    const choose = (event) => RA.go('move', { ...RA.gainsQuery(live), head: event.target.value });
    const option = (id) => el('option', { selected: id === head }, id);
    const node = el(
      'div',
      { class: 'controls' },
      el(
        'datalist',
        { id: 'gains' },
        [0, 1, 2].map((v) => el('option', { value: v })),
      ),
      el('h3', {}, 'Presets'),
      presets(live, head),
      strengths,
      stages.length > 1 ? [el('h3', {}, 'Stages'), stages.map((name) => whole(name, name))] : null,
      el(
        'details',
        { open: stages.length === 1 || blocks.some((b) => b in live.gains) },
        el('summary', {}, 'Blocks'),
        blocks.map((name) => whole(name, short(name))),
      ),
      el(
        'h3',
        {},
        'Head ',
        el(
          'select',
          { 'aria-label': 'head to move', id: 'move-head', onchange: choose },
          heads.id.map(option),
        ),
        el('a', { class: 'action', href: `#${head}` }, 'its page'),
      ),
      whole(head, `all of ${head}`),
      Array.from({ length: n }, (_, c) =>
        slider(`component ${c + 1}`, value(head, c + 1), (v) => set(head, c + 1, v)),
      ),
      others.map((name) => whole(name, `all of ${name}`)),
      el(
        'p',
        { class: 'quiet small-text' },
        'λ = 1 leaves things as they are, 0 switches off (the mean over clips stays), 2 doubles. ' +
          'Gains of a stage, its blocks and its heads add.',
      ),
      keeping(live, accuracy),
    );
    return { live, node };
  }

  RA.sliders = { build, start, python };
})();
