// Where a head looks: point at a patch of a window, and see which patches it attends to.
(() => {
  const { el, unpack } = RA;

  function together([times, bands]) {
    return times * bands > 1
      ? ` A cell here is ${times} × ${bands} patches (time × frequency) taken together.`
      : '';
  }

  function view(attention) {
    const choices = [
      {
        label:
          attention.n_maps === 1 ? 'the one window kept' : `mean of ${attention.n_maps} windows`,
        map: attention.mean,
      },
      ...attention.samples.map((s) => ({
        label: `${RA.clipName(s.row)}, window ${s.window}`,
        map: s.map,
      })),
    ];
    const placed = attention.grid
      .map(([t, f], i) => ({ t, f, i }))
      .filter((p) => p.t >= 0 && p.f >= 0);
    const times = 1 + Math.max(...placed.map((p) => p.t)),
      bands = 1 + Math.max(...placed.map((p) => p.f));
    let chosen = choices[0],
      map = unpack(chosen.map);
    const n = map.shape[0];
    const note = el('p', { class: 'quiet small-text' });

    function board(label, point) {
      const node = el('div', {
        class: 'board',
        role: 'group',
        'aria-label': label,
        style: { '--columns': times, '--rows': bands },
      });
      const cells = new Map();
      for (let f = bands - 1; f >= 0; f--) {
        for (let t = 0; t < times; t++) {
          const place = placed.find((p) => p.t === t && p.f === f);
          const cell =
            point && place
              ? el('button', {
                  type: 'button',
                  'aria-label': `patch at time ${t}, frequency ${f}`,
                  onmouseenter: () => point(place),
                  onfocus: () => point(place),
                  onclick: () => point(place),
                })
              : el('span', {});
          if (place) cells.set(place.i, cell);
          node.append(cell);
        }
      }
      return { node, cells };
    }
    const keys = board('where it looks', null);
    const queries = board('patches that look: point at one', look);

    function paint(cells, weights) {
      const top = Math.max(...weights.values(), 1e-9);
      for (const [i, cell] of cells) {
        const [r, g, b] = RA.colour.at(RA.colour.VIRIDIS, (weights.get(i) || 0) / top);
        cell.style.background = `rgb(${r}, ${g}, ${b})`;
      }
    }

    function look(place) {
      paint(keys.cells, new Map(placed.map((p) => [p.i, map.values[place.i * n + p.i]])));
      for (const [i, cell] of queries.cells) cell.classList.toggle('on', i === place.i);
      note.textContent = `from time ${place.t}, frequency ${place.f} of the window`;
    }

    function whole() {
      // how much each patch is looked at, and how much each looks elsewhere
      const seen = new Map(
        placed.map((p) => [p.i, placed.reduce((sum, q) => sum + map.values[q.i * n + p.i], 0)]),
      );
      const away = new Map(placed.map((p) => [p.i, 1 - map.values[p.i * n + p.i]]));
      paint(keys.cells, seen);
      paint(queries.cells, away);
      for (const cell of queries.cells.values()) cell.classList.remove('on');
      note.textContent = 'all patches together';
    }
    queries.node.addEventListener('mouseleave', whole);
    whole();
    return el(
      'div',
      { class: 'attention' },
      el(
        'label',
        { class: 'field' },
        'of ',
        el(
          'select',
          {
            onchange: (event) => {
              chosen = choices[event.target.selectedIndex];
              map = unpack(chosen.map);
              whole();
            },
          },
          choices.map((c) => el('option', {}, c.label)),
        ),
      ),
      el(
        'div',
        { class: times > 16 ? 'boards long' : 'boards' },
        el('figure', {}, queries.node, el('figcaption', {}, 'point at a patch …')),
        el('figure', {}, keys.node, el('figcaption', {}, '… to see where it looks')),
      ),
      note,
      el(
        'p',
        { class: 'quiet small-text' },
        'Time runs to the right, frequency upwards, inside one attention window.',
        together(attention.together),
      ),
    );
  }

  RA.attention = { view };
})();
