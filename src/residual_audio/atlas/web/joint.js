// The joint head in float32: its first layer is linear in the latent, the rest is not.
(() => {
  // rows [n, a] times weight [b, a] transposed, plus bias: [n, b]
  function affine(rows, n, weight, bias) {
    const [b, a] = weight.shape, w = weight.values;
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
    const sign = x < 0 ? -1 : 1, z = Math.abs(x), t = 1 / (1 + 0.3275911 * z);
    const y = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign * (1 - y * Math.exp(-z * z));
  }

  function of(piece) {
    const p = Object.fromEntries(Object.entries(piece.parameters).map(([k, v]) => [k, RA.unpack(v)]));
    const first = { identity: null, linear: p['linear.weight'], mlp: p['linear1.weight'], residual: p['linear1.weight'] }[piece.kind];
    const firstBias = { linear: p['linear.bias'], mlp: p['linear1.bias'] }[piece.kind] || null;

    // latents [n, D] → the first layer [n, H]; of a change of latents without the bias
    const enter = (latent, n, change) => (first ? affine(latent, n, first, change ? null : firstBias) : latent);

    // the first layer [n, H] → joint embeddings [n, d], not normalised
    function finish(hidden, n) {
      if (piece.kind === 'identity' || piece.kind === 'linear') return hidden;
      const h = hidden.length / n;
      if (piece.kind === 'mlp') {
        const open = hidden.map((v) => (v > 0 ? v : 0));
        return affine(open, n, p['linear2.weight'], p['linear2.bias']);
      }
      const out = affine(hidden.map((v) => 0.5 * v * (1 + erf(v / Math.SQRT2))), n, p['linear2.weight'], null);
      for (let i = 0; i < n; i++) {
        let mean = 0, square = 0;
        for (let j = 0; j < h; j++) { out[i * h + j] += hidden[i * h + j]; mean += out[i * h + j] / h; }
        for (let j = 0; j < h; j++) square += (out[i * h + j] - mean) ** 2 / h;
        const sigma = Math.sqrt(square + piece.eps.layer_norm);
        for (let j = 0; j < h; j++) {
          out[i * h + j] = ((out[i * h + j] - mean) / sigma) * p['layer_norm.weight'].values[j] + p['layer_norm.bias'].values[j];
        }
      }
      return out;
    }
    return { enter, finish };
  }

  RA.joint = { of, affine };
})();
