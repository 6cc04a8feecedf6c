// latent(λ) = latent + Σ (λ_j − 1) a_j φ_j, through the joint head, to scores of all clips.
//
// The first layer of the joint head is linear in the latent, so each unit is carried through it
// once; a step of a slider then adds a few arrays and runs only what comes after that layer.
(() => {
  const { unpack } = RA;

  async function start() {
    const piece = await RA.load('move/base');
    const latent = unpack(piece.latent),
      [n, width] = latent.shape;
    const joint = RA.joint.of(piece.joint);
    const texts = unpack(piece.texts),
      mean = unpack(piece.plane.mean).values,
      axes = unpack(piece.plane.axes);
    const base = joint.enter(latent.values, n, false),
      hidden = base.length / n;
    const units = new Map(); // name → { whole [n, hidden], along [k, n], axes [k, hidden] }

    // Σ_c along_c ⊗ axes_c, for these components
    function outer(along, onto, from, to) {
      const out = new Float32Array(n * hidden);
      for (let c = from; c < to; c++) {
        for (let i = 0; i < n; i++) {
          const a = along[c * n + i];
          for (let h = 0, at = i * hidden, w = c * hidden; h < hidden; h++, at++, w++)
            out[at] += a * onto[w];
        }
      }
      return out;
    }

    async function unit(name) {
      if (units.has(name)) return units.get(name);
      let made;
      const sites = RA.main.move.stages[name];
      if (sites) {
        const parts = await Promise.all(sites.map(unit));
        const whole = new Float32Array(n * hidden);
        for (const part of parts) for (let i = 0; i < whole.length; i++) whole[i] += part.whole[i];
        made = { whole };
      } else if (name.startsWith('preset/')) {
        const change = unpack((await RA.load(name)).change);
        made = { whole: joint.enter(change.values, n, true) };
      } else {
        const found = await RA.load(`move/${name}`);
        if (found.whole) made = { whole: joint.enter(unpack(found.whole).values, n, true) };
        else {
          const along = unpack(found.along),
            k = along.shape[0];
          const onto = joint.enter(unpack(found.axes).values, k, true);
          made = { whole: outer(along.values, onto, 0, k), along: along.values, onto, k };
        }
      }
      units.set(name, made);
      return made;
    }

    // gains: { unit: [whole, c1, c2 …] }, where 1 leaves things as they are; presets: { key: amount }
    async function run(gains, presets) {
      const names = [...Object.keys(gains), ...Object.keys(presets).map((key) => `preset/${key}`)];
      await Promise.all(names.map(unit));
      const state = Float32Array.from(base);
      const add = (values, amount) => {
        if (amount) for (let i = 0; i < state.length; i++) state[i] += amount * values[i];
      };
      for (const [name, list] of Object.entries(gains)) {
        const part = units.get(name);
        add(part.whole, list[0] - 1);
        list.slice(1).forEach((gain, c) => {
          if (gain !== 1 && part.along && c < part.k)
            add(outer(part.along, part.onto, c, c + 1), gain - 1);
        });
      }
      for (const [key, amount] of Object.entries(presets))
        add(units.get(`preset/${key}`).whole, amount);
      return read(joint.finish(state, n));
    }

    // Cosines of every clip with what stands for each class in its own fold.
    function cosines(embedding, d) {
      const classes = texts.shape[1],
        scores = new Float32Array(n * classes);
      for (let i = 0; i < n; i++) {
        const own = piece.folds[i] * classes * d;
        for (let c = 0; c < classes; c++) {
          let sum = 0;
          for (let j = 0, at = own + c * d; j < d; j++, at++)
            sum += embedding[i * d + j] * texts.values[at];
          scores[i * classes + c] = sum;
        }
      }
      return scores;
    }

    function read(embedding) {
      const d = embedding.length / n,
        classes = texts.shape[1];
      for (let i = 0; i < n; i++) {
        let square = 0;
        for (let j = 0; j < d; j++) square += embedding[i * d + j] ** 2;
        const length = Math.max(Math.sqrt(square), 1e-12);
        for (let j = 0; j < d; j++) embedding[i * d + j] /= length;
      }
      const scores = cosines(embedding, d);
      const centred = Float32Array.from(embedding, (v, i) => v - mean[i % d]);
      const places = RA.joint.affine(centred, n, axes, null);
      const predicted = new Int32Array(n);
      let right = 0,
        labelled = 0;
      for (let i = 0; i < n; i++) {
        let best = 0;
        for (let c = 1; c < classes; c++)
          if (scores[i * classes + c] > scores[i * classes + best]) best = c;
        predicted[i] = best;
        if (piece.codes[i] >= 0) {
          labelled++;
          if (piece.codes[i] === best) right++;
        }
      }
      return {
        scores,
        places,
        predicted,
        accuracy: labelled ? right / labelled : null,
        right,
        labelled,
      };
    }

    return {
      run,
      n,
      rows: piece.rows,
      codes: piece.codes,
      classes: piece.classes,
      of: piece.n_of,
      width,
      unit,
    };
  }

  let engine = null;
  RA.engine = () => (engine = engine || start());
})();
