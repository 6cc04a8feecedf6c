// What each moment of a clip adds to its score with a text.
(() => {
  const { el, unpack } = RA;
  const { number } = RA.format;
  const WIDTH = 600, HEIGHT = 120;

  // Steps of one curve as bars from the zero line, over the same seconds as the mel picture.
  function chart(curve, text, reach) {
    const n = curve.length, middle = HEIGHT / 2, step = WIDTH / n;
    const svg = el('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: 'times', role: 'img', preserveAspectRatio: 'none',
      'aria-label': `contributions to the score of ${text} over ${number(RA.main.seconds)} seconds` });
    curve.forEach((value, i) => {
      const high = (Math.abs(value) / reach) * (middle - 3), from = (i * RA.main.seconds) / n;
      svg.append(el('rect', { x: i * step + 0.5, width: Math.max(step - 1, 0.5), y: value > 0 ? middle - high : middle, height: Math.max(high, 0.5), class: value > 0 ? 'for' : 'against' },
        el('title', {}, `${number(from)} to ${number(from + RA.main.seconds / n)} s: ${number(value)}`)));
    });
    svg.append(el('line', { x1: 0, x2: WIDTH, y1: middle, y2: middle, class: 'zero-line' }));
    return svg;
  }

  // A row of buttons, one a text, and the curve of the one that is pressed.
  function view(times) {
    const { values, shape } = unpack(times.curves), width = shape[1];
    const curves = times.asked.map((_, i) => Array.from(values.slice(i * width, (i + 1) * width)));
    const reach = Math.max(...values.map(Math.abs), 1e-12);
    const place = el('div', { class: 'times-box' }), said = el('p', { class: 'small-text' });
    const buttons = times.asked.map((one, i) => el('button', { type: 'button', class: 'small', 'aria-pressed': 'false', onclick: () => show(i) },
      one.kind === 'caption' ? `“${one.text}”` : one.text));
    function show(i) {
      const { text, score } = times.asked[i], sum = curves[i].reduce((a, b) => a + b, 0);
      place.replaceChildren(chart(curves[i], text, reach));
      said.textContent = `Score with “${text}” ${number(score)}: ${number(sum)} of it is spread over these ${number(RA.main.seconds)} s, ${number(score - sum)} has no time (biases, and what the joint head adds).`;
      buttons.forEach((button, j) => button.setAttribute('aria-pressed', String(i === j)));
    }
    show(0);
    const node = el('section', { class: 'panel', id: 'times' }, el('h3', {}, 'Over time'),
      el('div', { class: 'presets' }, buttons), place,
      el('div', { class: 'ends' }, el('span', {}, '0 s'), el('span', { class: 'quiet' }, 'up: for the text, down: against it; the same height for all texts'), el('span', {}, `${number(RA.main.seconds)} s`)), said,
      el('p', { class: 'quiet small-text' }, 'Exact, all heads and MLPs together. A contribution is read where the model’s tokens are when they are pooled: attention has moved what was heard, so this is where the model has put the evidence, which need not be where the sound is.'));
    const answer = (text) => {
      const i = times.asked.findIndex((one) => one.kind === 'answer' && one.text === text);
      if (i >= 0) show(i);
    };
    return { node, answer };
  }

  RA.times = { view };
})();
