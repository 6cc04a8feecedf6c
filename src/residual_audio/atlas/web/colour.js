// Palettes that colour-blind readers can tell: viridis for amounts, blue–white–orange for changes;
// on dark ground no change is dark, so that the eye goes to what changes.
(() => {
  const VIRIDIS = [
    '#440154',
    '#482878',
    '#3e4989',
    '#31688e',
    '#26828e',
    '#1f9e89',
    '#35b779',
    '#6ece58',
    '#b5de2b',
    '#fde725',
  ];
  const CHANGE = [
    '#08306b',
    '#2166ac',
    '#4393c3',
    '#92c5de',
    '#f0f0ee',
    '#fdb863',
    '#e08214',
    '#b35806',
    '#7f3b08',
  ];
  const CHANGE_ON_DARK = [
    '#a9d2ff',
    '#6db3ee',
    '#3a86c8',
    '#27527b',
    '#262d35',
    '#744a17',
    '#bd6f1f',
    '#f0963c',
    '#ffcf96',
  ];
  // Okabe and Ito's eight, for a few kinds of things.
  const KINDS = [
    '#0072b2',
    '#d55e00',
    '#009e73',
    '#cc79a7',
    '#e69f00',
    '#56b4e9',
    '#7a5ba6',
    '#8c8c8c',
  ];

  const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const stops = new Map([VIRIDIS, CHANGE, CHANGE_ON_DARK].map((p) => [p, p.map(parse)]));

  function at(palette, t) {
    const list = stops.get(palette);
    const x = Math.min(Math.max(t, 0), 1) * (list.length - 1);
    const i = Math.min(Math.floor(x), list.length - 2);
    return list[i].map((v, c) => Math.round(v + (x - i) * (list[i + 1][c] - v)));
  }

  function dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  }

  const css = (rgb) => `rgb(${rgb[0]}, ${rgb[1]}, ${rgb[2]})`;

  // From the values of a metric to colours. The ends leave out the outermost hundredth, so that
  // one stray head does not make all others look alike.
  function scale(values, signed, middle) {
    const known = values.filter((v) => v !== null && Number.isFinite(v)).sort((a, b) => a - b);
    const quantile = (q) => known[Math.min(known.length - 1, Math.round(q * (known.length - 1)))];
    let low = known.length ? quantile(0.01) : 0;
    let high = known.length ? quantile(0.99) : 1;
    if (signed) {
      const reach = Math.max(Math.abs(high - middle), Math.abs(middle - low)) || 1;
      low = middle - reach;
      high = middle + reach;
    }
    if (high === low) high = low + 1;
    const palette = signed ? (dark() ? CHANGE_ON_DARK : CHANGE) : VIRIDIS;
    const colour = (v) =>
      v === null || !Number.isFinite(v) ? null : css(at(palette, (v - low) / (high - low)));
    // whether heads lie beyond the coloured ends, below and above
    const beyond = [known.length > 0 && known[0] < low, known.length > 0 && known.at(-1) > high];
    return { low, high, colour, beyond, ramp: (t) => css(at(palette, t)) };
  }

  const kind = (i) => KINDS[i % KINDS.length];
  RA.colour = { scale, kind, at, dark, VIRIDIS };
})();
