// The joint head in float32: its first layer is linear in the latent, the rest is not.
(() => {
  // rows [n, a] times weight [b, a] transposed, plus bias: [n, b]
  function affine(rows, n, weight, bias) {
    const [b, a] = weight.shape,
      w = weight.values;
    const out = new Float32Array(n * b);
    for (let i = 0; i < n; i++) {
      const from = i * a;
      for (let j = 0; j < b; j++) {
        let sum = bias ? bias.values[j] : 0;
        for (let k = 0, at = j * a; k < a; k++, at++) sum += rows[from + k] * w[at];
        out[i * b + j] = sum;
      }
    }
    return out;
  }

  // Abramowitz and Stegun 7.1.26: within 1.5e-7
  function erf(x) {
    const sign = x < 0 ? -1 : 1,
      z = Math.abs(x),
      t = 1 / (1 + 0.3275911 * z);
    const y =
      ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) *
      t;
    return sign * (1 - y * Math.exp(-z * z));
  }

  // LayerNorm of rows [n, h] in place
  function layerNorm(rows, n, weight, bias, eps) {
    const h = rows.length / n;
    for (let i = 0; i < n; i++) {
      let mean = 0,
        square = 0;
      for (let j = 0; j < h; j++) mean += rows[i * h + j] / h;
      for (let j = 0; j < h; j++) square += (rows[i * h + j] - mean) ** 2 / h;
      const sigma = Math.sqrt(square + eps);
      for (let j = 0; j < h; j++)
        rows[i * h + j] = ((rows[i * h + j] - mean) / sigma) * weight[j] + bias[j];
    }
    return rows;
  }

  // rows [n, h] at unit length
  function unit(rows, n) {
    const h = rows.length / n,
      out = new Float32Array(rows.length);
    for (let i = 0; i < n; i++) {
      let square = 0;
      for (let j = 0; j < h; j++) square += rows[i * h + j] ** 2;
      const length = Math.max(Math.sqrt(square), 1e-12);
      for (let j = 0; j < h; j++) out[i * h + j] = rows[i * h + j] / length;
    }
    return out;
  }

  const gelu = (v) => 0.5 * v * (1 + erf(v / Math.SQRT2));
  const relu = (v) => (v > 0 ? v : 0);

  function of(piece) {
    const p = Object.fromEntries(
      Object.entries(piece.parameters).map(([k, v]) => [k, RA.unpack(v)]),
    );
    const layer = {
      linear: 'linear',
      mlp: 'linear1',
      'gelu-mlp': 'linear1',
      'unit-mlp': 'first',
      residual: 'linear1',
    }[piece.kind];
    const first = p[layer + '.weight'] || null,
      firstBias = p[layer + '.bias'] || null;

    // latents [n, D] → the first layer [n, H]; of a change of latents without the bias
    const enter = (latent, n, change) =>
      first ? affine(latent, n, first, change ? null : firstBias) : latent;

    // the first layer [n, H] → joint embeddings [n, d], not normalised
    function finish(hidden, n) {
      if (piece.kind === 'identity' || piece.kind === 'linear') return hidden;
      const second = (rows, act) =>
        affine(rows.map(act), n, p['linear2.weight'], p['linear2.bias'] || null);
      if (piece.kind === 'mlp') return second(hidden, relu);
      if (piece.kind === 'gelu-mlp') return second(hidden, gelu);
      if (piece.kind === 'unit-mlp') {
        return second(
          affine(unit(hidden, n), n, p['linear1.weight'], p['linear1.bias']),
          piece.gelu ? gelu : relu,
        );
      }
      const norm = (rows) =>
        layerNorm(
          rows,
          n,
          p['layer_norm.weight'].values,
          p['layer_norm.bias'].values,
          piece.eps.layer_norm,
        );
      if (piece.kind === 'norm-linear')
        return affine(norm(hidden.slice()), n, p['linear.weight'], null);
      const out = second(hidden, gelu);
      for (let i = 0; i < out.length; i++) out[i] += hidden[i];
      return norm(out);
    }
    return { enter, finish };
  }

  RA.joint = { of, affine };
})();
