// One sound at a time; mel pictures with where a head responds, and a line that moves in time.
(() => {
  const { el, unpack } = RA;
  const player = el('audio', { id: 'player', preload: 'none' });
  let playing = null; // the card that sounds

  function line() {
    if (!playing) return;
    const whole = RA.main.seconds || player.duration || 1; // a long window's sound may be cut
    playing.line.style.left = `${(100 * player.currentTime) / whole}%`;
    if (!player.paused) requestAnimationFrame(line);
  }

  function stop() {
    player.pause();
    if (playing) {
      playing.node.classList.remove('playing');
      playing.button.setAttribute('aria-pressed', 'false');
      playing.line.hidden = true;
    }
    playing = null;
  }

  function play(card) {
    const again = playing === card;
    stop();
    if (again) return;
    RA.load(`clip/${card.row}`).then((piece) => {
      if (!piece.sound) return;
      playing = card;
      player.src = piece.sound;
      card.node.classList.add('playing');
      card.button.setAttribute('aria-pressed', 'true');
      card.line.hidden = false;
      player.play().then(line, stop);
    });
  }
  player.addEventListener('ended', stop);

  // Mel [time, mel] in grey, low frequencies below.
  function paintMel(canvas, mel) {
    const [times, bands] = mel.shape, { values } = unpack(mel);
    canvas.width = times;
    canvas.height = bands;
    const context = canvas.getContext('2d');
    const image = context.createImageData(times, bands);
    const span = mel.high - mel.low || 1;
    for (let t = 0; t < times; t++) {
      for (let b = 0; b < bands; b++) {
        const grey = 12 + 225 * ((values[t * bands + b] - mel.low) / span) ** 1.15;
        const i = 4 * ((bands - 1 - b) * times + t);
        image.data.set([grey, grey, grey + 6, 255], i);
      }
    }
    context.putImageData(image, 0, 0);
  }

  // Response [time, frequency]: orange where the head pushes towards this end, blue where away.
  function paintResponse(canvas, response, sign) {
    const [times, bands] = response.shape, { values } = unpack(response);
    const small = el('canvas', { width: times, height: bands });
    const context = small.getContext('2d');
    const image = context.createImageData(times, bands);
    // where every place pushes the same way, the weakest place is left clear: places are compared
    const sizes = Array.from(values, Math.abs), top = Math.max(...sizes, 1e-30);
    const oneWay = values.every((v) => v > 0) || values.every((v) => v < 0);
    const floor = oneWay ? Math.min(...sizes) : 0;
    for (let t = 0; t < times; t++) {
      for (let b = 0; b < bands; b++) {
        const value = sign * values[t * bands + b];
        const i = 4 * ((bands - 1 - b) * times + t);
        const rgb = value > 0 ? [255, 122, 0] : [30, 136, 255];
        image.data.set([...rgb, 190 * ((Math.abs(value) - floor) / (top - floor || 1)) ** 1.3], i);
      }
    }
    context.putImageData(image, 0, 0);
    canvas.width = 256;
    canvas.height = 96;
    const onto = canvas.getContext('2d');
    onto.imageSmoothingEnabled = true;
    onto.drawImage(small, 0, 0, canvas.width, canvas.height);
    canvas.dataset.drawn = 'yes';
  }

  // A clip to look at and listen to.
  function card(row, { response, sign = 1, note, large } = {}) {
    const clips = RA.main.clips, label = clips.label[row], id = clips.id[row];
    const mel = el('canvas', { class: 'mel', 'aria-hidden': 'true' });
    const over = el('canvas', { class: 'overlay', 'aria-hidden': 'true' });
    const time = el('span', { class: 'time', hidden: true });
    const button = el('button', { type: 'button', class: 'picture', 'aria-pressed': 'false',
      'aria-label': `Play ${label || 'clip'} (${id})${note ? ', ' + note : ''}` }, mel, over, time,
    el('span', { class: 'play', 'aria-hidden': 'true' }));
    const wrong = clips.predicted && label !== null && RA.main.classes[clips.predicted[row]] !== label;
    const node = el('figure', { class: large ? 'clip large' : 'clip' }, button,
      el('figcaption', {}, el('a', { href: `#clip/${row}` }, label || id),
        wrong ? el('span', { class: 'wrong', title: `the model says ${RA.main.classes[clips.predicted[row]]}` }, ' ✕') : null,
        note ? el('span', { class: 'quiet' }, ` ${note}`) : null));
    const self = { row, node, button, line: time };
    button.addEventListener('click', () => play(self));
    if (!clips.sound[row]) {
      button.disabled = true;
      button.classList.add('silent');
      button.append(el('span', { class: 'nothing' }, 'no sound kept'));
    } else {
      RA.load(`clip/${row}`).then((piece) => {
        if (piece.mel) paintMel(mel, piece.mel);
        if (response) paintResponse(over, response, sign);
      });
    }
    return node;
  }

  RA.audio = { card, stop, player, play, current: () => playing };
})();
