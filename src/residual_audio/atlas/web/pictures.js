// What the sliders do, drawn: the confusion of classes, and clips in the plane of their embeddings.
(() => {
  const { el } = RA;
  const NAMED = 16; // with so many classes or fewer, their names stand beside the matrix
  const SIZE = 400;

  function sharp(canvas, w, h) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = w * ratio;
    canvas.height = h * ratio;
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    return context;
  }

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

  function counted(found, engine) {
    const n = engine.classes.length,
      counts = new Float32Array(n * n),
      totals = new Float32Array(n);
    found.predicted.forEach((p, i) => {
      const c = engine.codes[i];
      if (c >= 0) {
        counts[c * n + p]++;
        totals[c]++;
      }
    });
    return { n, counts, totals };
  }

  // Rows are right answers, columns given ones; a row's colours are shares of its clips.
  function confusion(engine) {
    const { classes } = engine,
      n = classes.length,
      room = n <= NAMED ? 122 : 0;
    const side = (SIZE - room) / n,
      gap = side > 6 ? 1 : 0;
    const canvas = el('canvas', {
      class: 'confusion',
      role: 'img',
      'aria-label': 'confusion of classes: rows are right answers, columns are given ones',
    });
    const START = 'Rows: the right class; columns: the answer. Point at a cell.';
    const hint = el('p', { class: 'quiet small-text', role: 'status' }, START);
    const worst = el('ol', { class: 'worst' });
    let last = null;
    function names(context) {
      context.fillStyle = ink('--ink');
      context.font = '12px system-ui, sans-serif';
      context.textBaseline = 'middle';
      const short = (name) => (name.length > 17 ? `${name.slice(0, 16)}…` : name);
      classes.forEach((name, c) => {
        context.textAlign = 'right';
        context.fillText(short(name), room - 6, room + (c + 0.5) * side);
        context.save();
        context.translate(room + (c + 0.5) * side, room - 6);
        context.rotate(-Math.PI / 2);
        context.textAlign = 'left';
        context.fillText(short(name), 0, 0);
        context.restore();
      });
    }
    function draw(found) {
      last = counted(found, engine);
      const context = sharp(canvas, SIZE, SIZE),
        empty = ink('--none');
      if (room) names(context);
      for (let c = 0; c < n; c++) {
        for (let p = 0; p < n; p++) {
          const share = last.totals[c] ? last.counts[c * n + p] / last.totals[c] : 0;
          context.fillStyle = share
            ? `rgb(${RA.colour.at(RA.colour.VIRIDIS, 0.1 + 0.9 * share).join(', ')})`
            : empty;
          context.fillRect(room + p * side, room + c * side, side - gap, side - gap);
        }
      }
      const pairs = [];
      for (let c = 0; c < n; c++)
        for (let p = 0; p < n; p++)
          if (c !== p && last.counts[c * n + p]) pairs.push([last.counts[c * n + p], c, p]);
      pairs.sort((a, b) => b[0] - a[0]);
      worst.replaceChildren(
        ...pairs
          .slice(0, 4)
          .map(([k, c, p]) =>
            el('li', {}, `${classes[c]} taken for ${classes[p]}: ${k} of ${last.totals[c]}`),
          ),
      );
    }
    canvas.addEventListener('mousemove', (event) => {
      const box = canvas.getBoundingClientRect(),
        scale = SIZE / box.width;
      const p = Math.floor(((event.clientX - box.left) * scale - room) / side),
        c = Math.floor(((event.clientY - box.top) * scale - room) / side);
      const inside = p >= 0 && c >= 0 && p < n && c < n;
      hint.textContent = inside
        ? `${classes[c]} answered as ${classes[p]}: ${last.counts[c * n + p]} of ${last.totals[c]} clips`
        : START;
    });
    canvas.addEventListener('mouseleave', () => {
      hint.textContent = START;
    });
    return { draw, node: el('figure', {}, el('figcaption', {}, 'Confusion'), canvas, hint, worst) };
  }

  // Clips in the plane where the unmoved embeddings spread most; lines from where they were.
  function plane(engine, before, start) {
    const w = 420,
      h = 380,
      edge = 14,
      { rows } = engine;
    const canvas = el('canvas', {
      class: 'plane',
      role: 'img',
      'aria-label': 'clips in the plane of their embeddings',
    });
    const START = 'Point at a clip to see which it is; click to open it.';
    const hint = el('p', { class: 'quiet small-text', role: 'status' }, START);
    const ends = (o) => {
      const v = Array.from(before.places).filter((_, i) => i % 2 === o),
        low = Math.min(...v),
        high = Math.max(...v);
      return [low, high - low || 1];
    };
    const [x0, dx] = ends(0),
      [y0, dy] = ends(1);
    const at = (p, i) => [
      edge + ((w - 2 * edge) * (p[2 * i] - x0)) / dx,
      h - edge - ((h - 2 * edge) * (p[2 * i + 1] - y0)) / dy,
    ];
    let last = before;
    function draw(found) {
      last = found;
      const context = sharp(canvas, w, h),
        line = ink('--quiet'),
        [good, bad] = [ink('--minus'), ink('--plus')];
      for (let i = 0; i < engine.n; i++) {
        const [a, b] = at(before.places, i),
          [x, y] = at(found.places, i),
          right = found.predicted[i] === engine.codes[i];
        context.strokeStyle = line;
        context.globalAlpha = 0.45;
        context.beginPath();
        context.moveTo(a, b);
        context.lineTo(x, y);
        context.stroke();
        context.globalAlpha = 0.9;
        context.fillStyle = right ? good : bad;
        context.beginPath();
        if (right) context.arc(x, y, 4, 0, 7);
        else context.rect(x - 4, y - 4, 8, 8);
        context.fill();
      }
    }
    function nearest(event) {
      const box = canvas.getBoundingClientRect(),
        scale = w / box.width;
      const mx = (event.clientX - box.left) * scale,
        my = (event.clientY - box.top) * scale;
      let best = null,
        least = 12 ** 2;
      for (let i = 0; i < engine.n; i++) {
        const [x, y] = at(last.places, i),
          d = (x - mx) ** 2 + (y - my) ** 2;
        if (d < least) {
          least = d;
          best = i;
        }
      }
      return best;
    }
    canvas.addEventListener('mousemove', (event) => {
      const i = nearest(event);
      canvas.classList.toggle('over', i !== null);
      hint.textContent =
        i === null
          ? START
          : `${RA.clipName(rows[i])}, answered as ${engine.classes[last.predicted[i]]}`;
    });
    canvas.addEventListener('click', (event) => {
      const i = nearest(event);
      if (i !== null) location.hash = `#clip/${rows[i]}`;
    });
    const key = [
      el('span', { class: 'mark minus round' }, 'right'),
      ' ',
      el('span', { class: 'mark plus' }, 'wrong'),
      `, lines from where ${start} has them`,
    ];
    return {
      draw,
      node: el(
        'figure',
        {},
        el('figcaption', {}, 'Embeddings ', el('span', { class: 'quiet' }, key)),
        canvas,
        hint,
      ),
    };
  }

  RA.pictures = { confusion, plane };
})();
