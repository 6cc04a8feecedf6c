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

  // A picture [time, band] with low frequencies below; `colour(t, b, rgb)` fills in three numbers.
  function paint(canvas, [times, bands], colour) {
    canvas.width = times;
    canvas.height = bands;
    const context = canvas.getContext('2d'),
      image = context.createImageData(times, bands);
    const { data } = image,
      rgb = [0, 0, 0];
    for (let b = 0; b < bands; b++) {
      for (let t = 0, i = 4 * (bands - 1 - b) * times; t < times; t++, i += 4) {
        colour(t, b, rgb);
        [data[i], data[i + 1], data[i + 2], data[i + 3]] = [rgb[0], rgb[1], rgb[2], 255];
      }
    }
    context.putImageData(image, 0, 0);
    canvas.dataset.drawn = 'yes';
  }

  const paintMel = (canvas, light) =>
    paint(canvas, light.shape, (t, b, rgb) => {
      rgb[0] = rgb[1] = 12 + 225 * light.values[t * light.shape[1] + b];
      rgb[2] = rgb[0] + 6;
    });

  // Where the middles of `to` places lie among `from` places: the one below, the one above, how far.
  function middles(from, to) {
    return Array.from({ length: to }, (_, i) => {
      const at = Math.min(Math.max(((i + 0.5) / to) * from - 0.5, 0), from - 1),
        below = Math.floor(at);
      return [below, Math.min(below + 1, from - 1), at - below];
    });
  }

  // Response [time, frequency] over the mel picture: orange where the head pushes towards this end,
  // blue where away. What sounds stays bright, so that both can be read in one picture.
  function paintResponse(canvas, light, response, sign) {
    const { values, shape } = unpack(response),
      [times, bands] = light.shape,
      width = shape[1];
    // where every place pushes the same way, the weakest place is left clear: places are compared
    const sizes = Array.from(values, Math.abs),
      top = Math.max(...sizes, 1e-30);
    const oneWay = values.every((v) => v > 0) || values.every((v) => v < 0);
    const floor = oneWay ? Math.min(...sizes) : 0;
    const across = middles(shape[0], times),
      up = middles(width, bands);
    paint(canvas, light.shape, (t, b, rgb) => {
      const [t0, t1, dt] = across[t],
        [b0, b1, db] = up[b];
      const low = values[t0 * width + b0] * (1 - dt) + values[t1 * width + b0] * dt;
      const high = values[t0 * width + b1] * (1 - dt) + values[t1 * width + b1] * dt;
      const value = sign * (low * (1 - db) + high * db);
      const push = (Math.max(Math.abs(value) - floor, 0) / (top - floor || 1)) ** 1.2;
      const shine = light.values[t * bands + b],
        glow = push * (0.34 + 0.66 * shine);
      const grey = (12 + 225 * shine) * (1 - 0.85 * push);
      rgb[0] = grey + glow * (value > 0 ? 255 : 64);
      rgb[1] = grey + glow * (value > 0 ? 140 : 156);
      rgb[2] = grey + glow * (value > 0 ? 26 : 255);
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
