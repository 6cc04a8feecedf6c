// What the sliders say as a gains file: safetensors, written here, read by `load_gains`.
(() => {
  const { unpack } = RA;
  const text = (string) => new TextEncoder().encode(string);

  const ROUNDS = Uint32Array.from({ length: 64 });
  const START = new Uint32Array(8);
  {
    // the first 32 bits of the fractions of roots of primes, as SHA-256 defines them
    const fraction = (x) => Math.floor((x - Math.floor(x)) * 2 ** 32);
    for (let n = 2, found = 0; found < 64; n++) {
      if (Array.from({ length: n - 2 }, (_, i) => i + 2).some((d) => n % d === 0)) continue;
      if (found < 8) START[found] = fraction(Math.sqrt(n));
      ROUNDS[found++] = fraction(Math.cbrt(n));
    }
  }

  // SHA-256 of bytes, as hexadecimal digits; a page from a file may have no `crypto.subtle`.
  function sha256(data) {
    const size = Math.ceil((data.length + 9) / 64) * 64;
    const padded = new Uint8Array(size);
    padded.set(data);
    padded[data.length] = 0x80;
    const view = new DataView(padded.buffer);
    view.setUint32(size - 8, Math.floor((data.length * 8) / 2 ** 32));
    view.setUint32(size - 4, (data.length * 8) >>> 0);
    const turn = (x, n) => (x >>> n) | (x << (32 - n));
    const state = Uint32Array.from(START),
      w = new Uint32Array(64);
    for (let from = 0; from < size; from += 64) {
      for (let i = 0; i < 16; i++) w[i] = view.getUint32(from + 4 * i);
      for (let i = 16; i < 64; i++) {
        const a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ (w[i - 15] >>> 3);
        const b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ (w[i - 2] >>> 10);
        w[i] = w[i - 16] + a + w[i - 7] + b;
      }
      let [a, b, c, d, e, f, g, h] = state;
      for (let i = 0; i < 64; i++) {
        const one = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25),
          choice = (e & f) ^ (~e & g);
        const t = (h + one + choice + ROUNDS[i] + w[i]) >>> 0;
        const zero = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22),
          most = (a & b) ^ (a & c) ^ (b & c);
        [h, g, f, e, d, c, b, a] = [g, f, e, (d + t) >>> 0, c, b, a, (t + zero + most) >>> 0];
      }
      [a, b, c, d, e, f, g, h].forEach((v, i) => {
        state[i] += v;
      });
    }
    return Array.from(state, (v) => v.toString(16).padStart(8, '0')).join('');
  }

  // Tensors { name: { kind, shape, values } } and a header of strings, as safetensors has them.
  function safetensors(tensors, about) {
    const header = { __metadata__: about };
    let at = 0;
    for (const [name, { kind, shape, values }] of Object.entries(tensors)) {
      header[name] = { dtype: kind, shape, data_offsets: [at, at + values.byteLength] };
      at += values.byteLength;
    }
    let head = text(JSON.stringify(header));
    head = Uint8Array.from({ length: Math.ceil(head.length / 8) * 8 }, (_, i) =>
      i < head.length ? head[i] : 32,
    );
    const out = new Uint8Array(8 + head.length + at);
    new DataView(out.buffer).setBigUint64(0, BigInt(head.length), true);
    out.set(head, 8);
    let to = 8 + head.length;
    for (const { values } of Object.values(tensors)) {
      out.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), to);
      to += values.byteLength;
    }
    return out;
  }

  // A flat object of strings as Python's `json.dumps(…, sort_keys=True)` writes it.
  function asPython(strings) {
    const ascii = (s) =>
      JSON.stringify(s).replace(
        /[\u007f-\uffff]/g,
        (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
      );
    return `{${Object.keys(strings)
      .sort()
      .map((k) => `${ascii(k)}: ${ascii(strings[k])}`)
      .join(', ')}}`;
  }

  // λ − 1 of the rules that are set, by head: each at its strength.
  async function ruled(presets) {
    const found = {};
    for (const [key, amount] of Object.entries(presets)) {
      for (const [head, list] of Object.entries((await RA.load(`preset/${key}`)).gains)) {
        found[head] = list.map((v, i) => ((found[head] || [])[i] || 0) + amount * (v - 1));
      }
    }
    return found;
  }

  // The mean of what a unit adds to the latent; of a stage, that of its blocks together.
  async function meanOf(name) {
    const sites = RA.main.move.stages[name];
    if (!sites) return unpack((await RA.load(`move/${name}`)).mean).values;
    const parts = await Promise.all(sites.map(meanOf));
    return parts[0].map((_, i) => parts.reduce((sum, part) => sum + part[i], 0));
  }

  // One unit: its gains, mean, axes and variances. One gain for the whole needs no axes.
  async function unitOf(name, [whole, ...single], rule) {
    const mean = await meanOf(name);
    if (!rule && single.every((v) => v === 1))
      return { gains: [whole], mean, axes: new Float32Array(0), variances: [] };
    const piece = await RA.load(`move/${name}`);
    const gains = piece.variances.map(
      (_, j) => whole + (single[j] ?? 1) - 1 + ((rule || [])[j] || 0),
    );
    return { gains, mean, axes: unpack(piece.axes).values, variances: piece.variances };
  }

  // Bytes of a gains file of these sliders and rules, its spectra inside.
  async function make({ gains, presets }) {
    const rules = await ruled(presets),
      names = [...new Set([...Object.keys(gains), ...Object.keys(rules)])];
    const units = await Promise.all(
      names.map((name) => unitOf(name, gains[name] || [1], rules[name])),
    );
    const tensors = {};
    names.forEach((name, u) => {
      const { mean, axes, variances } = units[u];
      const part = (values, shape) => ({ kind: 'F32', shape, values: Float32Array.from(values) });
      tensors[`mean/${name}`] = part(mean, [mean.length]);
      tensors[`basis/${name}`] = part(axes, [variances.length, mean.length]);
      tensors[`eigenvalues/${name}`] = part(variances, [variances.length]);
    });
    const counted = Object.fromEntries(names.map((name) => [name, RA.main.n_clips]));
    const spectra = safetensors(tensors, { n: JSON.stringify(counted) });
    const flat = Float32Array.from(units.flatMap((unit) => unit.gains));
    const about = {
      format: 'residual-audio-gains',
      schema_version: '2',
      units: JSON.stringify(
        Object.fromEntries(names.map((name, u) => [name, units[u].gains.length])),
      ),
      keep_mean: 'true',
      path: 'direct',
      means: '{}',
      spectra_sha256: sha256(spectra),
      fitted_on: JSON.stringify({
        model: RA.main.model,
        dataset: { name: RA.main.dataset },
        by: 'sliders of the atlas',
      }),
    };
    const said = text(asPython(about)),
      all = new Uint8Array(said.length + flat.byteLength);
    all.set(said);
    all.set(new Uint8Array(flat.buffer), said.length);
    about.sha256 = sha256(all);
    return safetensors(
      {
        gains: { kind: 'F32', shape: [flat.length], values: flat },
        spectra: { kind: 'U8', shape: [spectra.length], values: spectra },
      },
      about,
    );
  }

  RA.gainsFile = { make, sha256 };
})();
