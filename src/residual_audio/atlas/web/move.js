// Move it: gains of stages, blocks, heads and components, and what they do, live.
(() => {
  const { el } = RA;
  const { number, csv } = RA.format;

  const unitName = (name) => name.replace('.attention', '');

  // A 95% interval of a share (Wilson).
  function wilson(k, n) {
    const z = 1.96, p = k / n, d = 1 + (z * z) / n, m = (p + (z * z) / (2 * n)) / d;
    const r = (z * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n))) / d;
    return [m - r, m + r];
  }

  function confusion(canvas, found, engine) {
    const n = engine.classes.length, counts = new Float32Array(n * n), totals = new Float32Array(n);
    found.predicted.forEach((p, i) => { const c = engine.codes[i]; if (c >= 0) { counts[c * n + p]++; totals[c]++; } });
    const size = Math.max(4, Math.floor(360 / n)), context = canvas.getContext('2d');
    canvas.width = canvas.height = n * size;
    for (let c = 0; c < n; c++) {
      for (let p = 0; p < n; p++) {
        const share = totals[c] ? counts[c * n + p] / totals[c] : 0;
        const [r, g, b] = share ? RA.colour.at(RA.colour.VIRIDIS, 0.15 + 0.85 * share) : [c === p ? 70 : 44, 30, c === p ? 100 : 66];
        context.fillStyle = `rgb(${r}, ${g}, ${b})`;
        context.fillRect(p * size, c * size, size - (size > 5 ? 1 : 0), size - (size > 5 ? 1 : 0));
      }
    }
    return { counts, size, n };
  }

  function plane(canvas, found, before, engine) {
    const ratio = window.devicePixelRatio || 1, w = 420, h = 360;
    canvas.width = w * ratio;
    canvas.height = h * ratio;
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    const all = [...before.places];
    const ends = (o) => { const v = all.filter((_, i) => i % 2 === o); return [Math.min(...v), Math.max(...v)]; };
    const [x0, x1] = ends(0), [y0, y1] = ends(1);
    const at = (p, i) => [16 + ((w - 32) * (p[2 * i] - x0)) / (x1 - x0), h - 16 - ((h - 32) * (p[2 * i + 1] - y0)) / (y1 - y0)];
    const ink = getComputedStyle(document.body).getPropertyValue('--quiet');
    for (let i = 0; i < engine.n; i++) {
      const [a, b] = at(before.places, i), [x, y] = at(found.places, i), right = found.predicted[i] === engine.codes[i];
      context.strokeStyle = ink;
      context.globalAlpha = 0.45;
      context.beginPath();
      context.moveTo(a, b);
      context.lineTo(x, y);
      context.stroke();
      context.globalAlpha = 0.9;
      context.fillStyle = right ? '#0072b2' : '#d55e00';
      context.beginPath();
      if (right) context.arc(x, y, 4, 0, 7);
      else context.rect(x - 4, y - 4, 8, 8);
      context.fill();
    }
  }

  function python(state) {
    return ['import residual_audio as ra', 'from residual_audio.surface.gain_studies import slider_gains', '',
      `gains = slider_gains(${JSON.stringify(RA.main.run)}, ${JSON.stringify(state.gains)})  # the run folder, and λ by unit`,
      `vectors = ra.load_model(${JSON.stringify(RA.main.model.name)}).embed_audio(["a.wav"], edit=gains)`,
      ...Object.keys(state.presets).map((key) => `# the preset '${key}' (× ${state.presets[key]}) is not in these gains: see the run's gains/ and reweight.rules`), ''].join('\n');
  }

  function file(state) {
    return JSON.stringify({ format: 'residual-audio-sliders', schema_version: 1, model: RA.main.model, run: RA.main.run, sliders: state.gains, presets: state.presets }, null, 2) + '\n';
  }

  function slider(label, value, change, note) {
    const out = el('output', {}, number(value));
    const input = el('input', { type: 'range', min: -1, max: 3, step: 0.05, value, 'aria-label': `gain of ${label}`, list: 'gains',
      oninput: (event) => { out.textContent = number(Number(event.target.value)); change(Number(event.target.value)); } });
    return el('label', { class: 'slider', title: note || null }, el('span', {}, label), input, out);
  }

  function build(engine, state, changed) {
    const { move, heads } = RA.main, live = { gains: structuredClone(state.gains), presets: { ...state.presets } };
    const head = state.head || Object.keys(state.gains).find((name) => heads.id.includes(name)) || heads.id[heads.id.length - 1];
    const set = (name, place, value) => {
      const list = live.gains[name] || [1];
      while (list.length <= place) list.push(1);
      list[place] = value;
      live.gains[name] = list;
      if (list.every((v) => v === 1)) delete live.gains[name];
      changed(live);
    };
    const value = (name, place) => (live.gains[name] || [])[place] ?? 1;
    const stages = Object.keys(move.stages);
    return {
      live,
      node: el('div', { class: 'controls' }, el('datalist', { id: 'gains' }, [0, 1, 2].map((v) => el('option', { value: v }))),
        el('h3', {}, 'Presets'),
        el('div', { class: 'presets' },
          el('a', { class: 'button', href: '#move' }, 'Zero-shot'),
          move.presets.map((p) => el('a', { class: p.key in live.presets ? 'button on' : 'button', href: `#move?p=${p.key}:1`, title: p.about }, p.label)),
          el('a', { class: 'button', href: `#move?${head}=0`, title: `only the mean of ${head} stays` }, `${head} off`)),
        Object.entries(live.presets).map(([key, amount]) => slider(`strength of ${key}`, amount, (v) => { live.presets[key] = v; changed(live); })),
        el('h3', {}, 'Stages'), stages.map((name) => slider(name, value(name, 0), (v) => set(name, 0, v))),
        el('details', { open: Object.keys(live.gains).some((k) => k.endsWith('.attention')) }, el('summary', {}, 'Blocks'),
          stages.flatMap((s) => move.stages[s]).map((name) => slider(unitName(name), value(name, 0), (v) => set(name, 0, v)))),
        el('h3', {}, 'Head ', el('select', { 'aria-label': 'head to move', id: 'move-head', onchange: (event) => RA.go('move', { ...RA.gainsQuery(live), head: event.target.value }) },
          heads.id.map((id) => el('option', { selected: id === head }, id)))),
        slider(`all of ${head}`, value(head, 0), (v) => set(head, 0, v), 'its mean over clips stays'),
        Array.from({ length: RA.main.n_components }, (_, c) => slider(`component ${c + 1}`, value(head, c + 1), (v) => set(head, c + 1, v))),
        Object.keys(live.gains).filter((name) => heads.id.includes(name) && name !== head).map((name) => slider(`all of ${name}`, value(name, 0), (v) => set(name, 0, v))),
        el('p', { class: 'quiet small-text' }, 'λ = 1 leaves things as they are, 0 switches off (the mean over clips stays), 2 doubles. Gains of a stage, its blocks and its heads add.'),
        el('div', { class: 'presets' },
          el('button', { type: 'button', onclick: (event) => copy(event.target, python(live)) }, 'Copy as Python'),
          el('button', { type: 'button', onclick: () => RA.save('sliders.json', file(live), 'application/json') }, 'Save as a gains file'))),
    };
  }

  function copy(button, text) {
    const done = () => { button.textContent = 'Copied'; RA.say('copied'); setTimeout(() => { button.textContent = 'Copy as Python'; }, 1500); };
    const area = el('textarea', { class: 'hidden-text', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.dataset.copied = text;
    done();
  }

  RA.views.move = async (state) => {
    if (!RA.main.move) return el('p', {}, 'Nothing to move: the direct path to the joint embedding was not captured, or there are no classes.');
    const engine = await RA.engine(), before = await engine.run({}, {});
    const accuracy = el('strong', { id: 'accuracy' }), delta = el('span', { id: 'delta' }), spread = el('span', { class: 'quiet' });
    const matrix = el('canvas', { class: 'confusion', role: 'img', 'aria-label': 'confusion of classes: rows are right answers, columns are given ones' });
    const hint = el('p', { class: 'quiet small-text' }, 'rows: right, columns: answered');
    const map = el('canvas', { class: 'plane', role: 'img', 'aria-label': 'clips in the plane of their embeddings' });
    const flips = el('ul', { class: 'flips' });
    let drawn = null, last = null, busy = false, next = null;

    async function show(live) {
      if (busy) { next = live; return; }
      busy = true;
      const start = performance.now(), found = await engine.run(live.gains, live.presets);
      last = found;
      accuracy.textContent = number(found.accuracy, 'share');
      accuracy.dataset.value = found.accuracy;
      const change = found.accuracy - before.accuracy;
      delta.textContent = `${change > 0 ? '+' : ''}${number(100 * change)} points from zero-shot`;
      const [low, high] = wilson(found.right, found.labelled);
      spread.textContent = `95% interval ${number(low, 'share')} to ${number(high, 'share')}; ${found.labelled} clips${engine.of > engine.n ? ` of ${engine.of}, spread over the classes` : ''}`;
      drawn = confusion(matrix, found, engine);
      plane(map, found, before, engine);
      const moved = [...found.predicted.keys()].filter((i) => found.predicted[i] !== before.predicted[i]);
      flips.replaceChildren(...moved.slice(0, 30).map((i) => {
        const right = found.predicted[i] === engine.codes[i], was = before.predicted[i] === engine.codes[i];
        return el('li', { class: right ? 'better' : was ? 'worse' : '' }, el('a', { href: `#clip/${engine.rows[i]}` }, RA.main.clips.label[engine.rows[i]] || RA.main.clips.id[engine.rows[i]]),
          `: ${engine.classes[before.predicted[i]]} → ${engine.classes[found.predicted[i]]}${right ? ' ✓' : ''}`);
      }), moved.length ? '' : el('li', { class: 'quiet' }, 'no clip is answered otherwise than zero-shot'));
      accuracy.dataset.ms = (performance.now() - start).toFixed(1);
      RA.scores = { values: found.scores, rows: engine.rows, classes: engine.classes };
      busy = false;
      if (next) { const again = next; next = null; await show(again); }
    }
    matrix.addEventListener('mousemove', (event) => {
      const box = matrix.getBoundingClientRect(), p = Math.floor(((event.clientX - box.left) / box.width) * drawn.n), c = Math.floor(((event.clientY - box.top) / box.height) * drawn.n);
      if (drawn.counts[c * drawn.n + p] !== undefined) hint.textContent = `${engine.classes[c]} answered as ${engine.classes[p]}: ${drawn.counts[c * drawn.n + p]}`;
    });
    let timer = null;
    const { live, node } = build(engine, state, (now) => {
      show(now);
      clearTimeout(timer);
      timer = setTimeout(() => RA.remember('move', RA.gainsQuery(now)), 400);
    });
    await show(live);
    return el('article', { class: 'move' }, el('h2', {}, 'Move it ', el('span', { class: 'quiet' }, 'everything is recomputed here, from direct contributions')),
      el('div', { class: 'beside left' }, node,
        el('div', {}, el('div', { class: 'score' }, accuracy, delta, spread),
          el('div', { class: 'columns' }, el('figure', {}, el('figcaption', {}, 'Embeddings ', el('span', { class: 'quiet' }, 'blue dots right, orange squares wrong; lines from where zero-shot has them')), map),
            el('figure', {}, el('figcaption', {}, 'Confusion'), matrix, hint)),
          el('section', {}, el('h3', {}, 'Answers that changed ', el('button', { type: 'button', class: 'small', onclick: () => RA.save('answers.csv',
            csv(['clip', 'label', 'zero-shot', 'now'], [...last.predicted].map((p, i) => [RA.main.clips.id[engine.rows[i]], RA.main.clips.label[engine.rows[i]], engine.classes[before.predicted[i]], engine.classes[p]])), 'text/csv') }, 'CSV')), flips))));
  };
})();
