// One sound at a time; mel pictures with where a head responds, and a line that moves in time.
(() => {
  const { el, unpack } = RA;
  const player = el('audio', { id: 'player', preload: 'none' });
  let playing = null; // the card that sounds
  let asked = 0; // the newest wish to hear something: an older one that loads longer is dropped

  function line() {
    if (!playing) return;
    const whole = RA.main.seconds || player.duration || 1; // a long window's sound may be cut
    for (const one of playing.lines) one.style.left = `${(100 * player.currentTime) / whole}%`;
    if (!player.paused) requestAnimationFrame(line);
  }

  function stop() {
    asked++;
    player.pause();
    if (playing) {
      playing.node.classList.remove('playing');
      playing.button.setAttribute('aria-pressed', 'false');
      for (const one of playing.lines) one.hidden = true;
    }
    playing = null;
  }

  function play(card) {
    const again = playing === card;
    stop();
    if (again) return;
    const wish = asked;
    RA.load(`clip/${card.row}`).then((piece) => {
      if (!piece.sound || wish !== asked) return;
      playing = card;
      player.src = piece.sound;
      card.node.classList.add('playing');
      card.button.setAttribute('aria-pressed', 'true');
      for (const one of card.lines) one.hidden = false;
      player.play().then(line, stop);
    });
  }
  player.addEventListener('ended', stop);

  // Brightness [time, mel] between 0 and 1 of a mel picture.
  function brightness(mel) {
    const { values, shape } = unpack(mel),
      span = mel.high - mel.low || 1;
    return {
      shape,
      values: values.map((v) => Math.min(Math.max((v - mel.low) / span, 0), 1) ** 1.15),
    };
  }

  // A picture [time, band] with low frequencies below; `colour(t, b)` gives red, green and blue.
  function paint(canvas, [times, bands], colour) {
    canvas.width = times;
    canvas.height = bands;
    const context = canvas.getContext('2d'),
      image = context.createImageData(times, bands);
    for (let t = 0; t < times; t++) {
      for (let b = 0; b < bands; b++)
        image.data.set([...colour(t, b), 255], 4 * ((bands - 1 - b) * times + t));
    }
    context.putImageData(image, 0, 0);
    canvas.dataset.drawn = 'yes';
  }

  const paintMel = (canvas, light) =>
    paint(canvas, light.shape, (t, b) => {
      const grey = 12 + 225 * light.values[t * light.shape[1] + b];
      return [grey, grey, grey + 6];
    });

  // From the middle of one place to the middle of the next, in a straight line.
  function between(values, [times, bands], x, y) {
    const t = Math.min(Math.max(x * times - 0.5, 0), times - 1),
      b = Math.min(Math.max(y * bands - 0.5, 0), bands - 1);
    const t0 = Math.floor(t),
      b0 = Math.floor(b),
      t1 = Math.min(t0 + 1, times - 1),
      b1 = Math.min(b0 + 1, bands - 1);
    const along = (row) =>
      values[row * bands + b0] * (1 - b + b0) + values[row * bands + b1] * (b - b0);
    return along(t0) * (1 - t + t0) + along(t1) * (t - t0);
  }

  // Response [time, frequency] over the mel picture: orange where the head pushes towards this end,
  // blue where away. What sounds stays bright, so that both can be read in one picture.
  function paintResponse(canvas, light, response, sign) {
    const { values, shape } = unpack(response),
      [times, bands] = light.shape;
    // where every place pushes the same way, the weakest place is left clear: places are compared
    const sizes = Array.from(values, Math.abs),
      top = Math.max(...sizes, 1e-30);
    const oneWay = values.every((v) => v > 0) || values.every((v) => v < 0);
    const floor = oneWay ? Math.min(...sizes) : 0;
    paint(canvas, light.shape, (t, b) => {
      const value = sign * between(values, shape, (t + 0.5) / times, (b + 0.5) / bands);
      const push = (Math.max(Math.abs(value) - floor, 0) / (top - floor || 1)) ** 1.2;
      const shine = light.values[t * bands + b],
        grey = 12 + 225 * shine,
        glow = push * (0.34 + 0.66 * shine);
      const rgb = value > 0 ? [255, 140, 26] : [64, 156, 255];
      return rgb.map((c) => grey * (1 - 0.85 * push) + c * glow);
    });
  }

  // What stands below a picture: what it is, whether it was mistaken, and a note; of a large one,
  // which has its name above, the seconds.
  function caption(row, note, large) {
    const { clips, classes, seconds } = RA.main,
      label = clips.label[row];
    if (large) {
      if (!seconds || !clips.sound[row]) return null;
      return el(
        'figcaption',
        { class: 'between quiet' },
        el('span', {}, '0 s'),
        el('span', {}, 'log-mel: time to the right, frequency upwards, louder is brighter'),
        el('span', {}, `${RA.format.number(seconds)} s`),
      );
    }
    const answer = clips.predicted && label !== null ? classes[clips.predicted[row]] : label;
    return el(
      'figcaption',
      {},
      el('a', { href: `#clip/${row}` }, RA.clipName(row)),
      answer !== label
        ? el('span', { class: 'wrong', title: `the model says ${answer}` }, ' ✕')
        : null,
      note ? el('span', { class: 'quiet note' }, ` ${note}`) : null,
    );
  }

  // A clip to look at and listen to; `follow` are other lines that move with the sound.
  function card(row, { response, sign = 1, note, large, follow = [] } = {}) {
    const { clips } = RA.main,
      label = RA.clipName(row);
    const mel = el('canvas', { class: 'mel', 'aria-hidden': 'true' });
    const over = el('canvas', { class: 'overlay', 'aria-hidden': 'true' });
    const time = el('span', { class: 'time', hidden: true });
    const button = el(
      'button',
      {
        type: 'button',
        class: 'picture',
        'aria-pressed': 'false',
        'aria-label': `Play ${label} (${clips.id[row]})${note ? ', ' + note : ''}`,
      },
      mel,
      over,
      time,
      el('span', { class: 'play', 'aria-hidden': 'true' }),
    );
    const node = el(
      'figure',
      { class: large ? 'clip large' : 'clip' },
      button,
      caption(row, note, large),
    );
    const self = { row, node, button, lines: [time, ...follow] };
    button.addEventListener('click', () => play(self));
    if (!clips.sound[row]) {
      button.disabled = true;
      button.classList.add('silent');
      button.append(el('span', { class: 'nothing' }, 'no sound kept'));
      return node;
    }
    RA.load(`clip/${row}`).then((piece) => {
      if (!piece.mel) return;
      const light = brightness(piece.mel);
      paintMel(mel, light);
      if (response) paintResponse(over, light, response, sign);
    });
    return node;
  }

  RA.audio = { card, stop, player, play, current: () => playing };
})();
