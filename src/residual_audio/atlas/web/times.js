// What each moment of a clip adds to its score with a text.
(() => {
  const { el, unpack } = RA;
  const { number } = RA.format;
  const WIDTH = 600,
    HEIGHT = 120;
  const ABOUT =
    'Exact, all heads and MLPs together. A contribution is read where the model’s tokens are when they are ' +
    'pooled: attention has moved what was heard, so this is where the model has put the evidence, which need ' +
    'not be where the sound is.';

  // Steps of one curve as bars from the zero line, over the same seconds as the mel picture; all
  // curves of a clip have the same two ends.
  function chart(curve, text, [low, high]) {
    const n = curve.length,
      step = WIDTH / n,
      seconds = RA.main.seconds;
    const y = (v) => HEIGHT - (HEIGHT * (v - low)) / (high - low),
      zero = y(0);
    const svg = el('svg', {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      class: 'times',
      role: 'img',
      preserveAspectRatio: 'none',
      'aria-label': `contributions to the score of ${text} over ${number(seconds)} seconds`,
    });
    curve.forEach((value, i) => {
      const from = (i * seconds) / n;
      svg.append(
        el(
          'rect',
          {
            x: i * step + 0.5,
            width: Math.max(step - 1, 0.5),
            y: Math.min(y(value), zero),
            height: Math.max(Math.abs(y(value) - zero), 0.5),
            class: value > 0 ? 'for' : 'against',
          },
          el('title', {}, `${number(from)} to ${number(from + seconds / n)} s: ${number(value)}`),
        ),
      );
    });
    svg.append(el('line', { x1: 0, x2: WIDTH, y1: zero, y2: zero, class: 'zero-line' }));
    return svg;
  }

  // A row of buttons, one a text, and the curve of the one that is pressed.
  function view(times) {
    const { values, shape } = unpack(times.curves),
      width = shape[1],
      { seconds } = RA.main;
    const curves = times.asked.map((_, i) => Array.from(values.slice(i * width, (i + 1) * width)));
    const room = 0.06 * (Math.max(...values, 0) - Math.min(...values, 0)) || 1e-6;
    const ends = [Math.min(...values, 0) - room, Math.max(...values, 0) + room];
    const line = el('span', { class: 'time dark-time', hidden: true });
    const place = el('div', { class: 'times-box' }),
      said = el('p', { class: 'small-text' });
    const named = (one) => (one.kind === 'caption' ? `“${one.text}”` : one.text);
    const buttons = times.asked.map((one, i) =>
      el(
        'button',
        { type: 'button', class: 'small', 'aria-pressed': 'false', onclick: () => show(i) },
        named(one),
      ),
    );
    function show(i) {
      const { text, score } = times.asked[i],
        sum = curves[i].reduce((a, b) => a + b, 0);
      place.replaceChildren(chart(curves[i], text, ends), line);
      said.textContent =
        `Score with “${text}”: ${number(score, 'score')}. Of that, ${number(sum, 'score')} is ` +
        `spread over these ${number(seconds)} s and ` +
        `${number(score - sum, 'score')} has no time (biases, and what the joint head adds).`;
      buttons.forEach((button, j) => button.setAttribute('aria-pressed', String(i === j)));
    }
    show(0);
    const node = el(
      'section',
      { class: 'panel', id: 'times' },
      el(
        'h3',
        {},
        'Over time ',
        el('span', { class: 'quiet' }, 'up: for the text; down: against it'),
      ),
      el('div', { class: 'presets' }, buttons),
      el(
        'div',
        { class: 'scaled' },
        el(
          'div',
          { class: 'scale', 'aria-hidden': 'true' },
          el('span', {}, number(ends[1] - room)),
          el('span', {}, number(ends[0] + room)),
        ),
        place,
      ),
      el(
        'div',
        { class: 'between quiet' },
        el('span', {}, '0 s'),
        el('span', {}, 'the same scale for all texts'),
        el('span', {}, `${number(seconds)} s`),
      ),
      said,
      el('p', { class: 'quiet small-text' }, ABOUT),
    );
    const answer = (text) => {
      const i = times.asked.findIndex((one) => one.kind === 'answer' && one.text === text);
      if (i >= 0) show(i);
    };
    return { node, answer, line };
  }

  RA.times = { view };
})();
