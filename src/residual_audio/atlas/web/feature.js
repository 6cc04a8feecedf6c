// Units from elsewhere, as a sparse autoencoder's features: a list, and a page for each.
(() => {
  const { el } = RA;
  const { number } = RA.format;
  const SHOWN = 200;

  const clips = (rows) =>
    el(
      'div',
      { class: 'clips' },
      rows.map(([row, value]) => RA.audio.card(row, { note: number(value) })),
    );

  function page(piece) {
    const { features } = RA.main,
      n = features.name.length,
      i = piece.number;
    const what = features.projected ? 'place along its direction' : 'activation';
    return el(
      'article',
      {},
      el(
        'div',
        { class: 'toolbar' },
        el(
          'a',
          {
            class: 'small button',
            href: `#feature/${(i + n - 1) % n}`,
            'aria-label': 'previous feature',
          },
          '←',
        ),
        el('h2', {}, piece.name, el('span', { class: 'quiet' }, ` ${features.title}`)),
        el(
          'a',
          { class: 'small button', href: `#feature/${(i + 1) % n}`, 'aria-label': 'next feature' },
          '→',
        ),
        el('a', { class: 'small button', href: '#features' }, `all ${n}`),
      ),
      piece.about ? el('p', {}, piece.about) : null,
      el(
        'p',
        { class: 'quiet' },
        `Above zero for ${number(features.active[i], 'share')} of ${features.n_clips} clips; ` +
          `the largest ${what} is ${number(features.largest[i])}.`,
      ),
      el(
        'section',
        { class: 'panel' },
        el('h3', {}, 'Clips that move it most'),
        piece.words ? RA.wordsOf(piece.words) : null,
        clips(piece.top),
      ),
      piece.low.length
        ? el(
            'section',
            { class: 'panel' },
            el('h3', {}, 'Clips at the other end'),
            clips(piece.low),
          )
        : null,
      el(
        'div',
        { class: 'panels' },
        piece.classes.length
          ? el(
              'section',
              { class: 'panel' },
              el(
                'h3',
                {},
                'Classes ',
                el('span', { class: 'quiet' }, 'mean, and the middle 80% of their clips'),
              ),
              RA.chart.strips(piece.classes, `${what} by class`, { unit: '' }),
            )
          : null,
      ),
    );
  }

  function list() {
    const { features } = RA.main;
    const order = features.name
      .map((_, i) => i)
      .sort((a, b) => features.largest[b] - features.largest[a] || a - b);
    const body = el('tbody', {});
    const fill = (n) =>
      body.replaceChildren(
        ...order
          .slice(0, n)
          .map((i) =>
            el(
              'tr',
              {},
              el('td', {}, el('a', { href: `#feature/${i}` }, features.name[i])),
              el('td', {}, features.label[i] || '–'),
              el('td', {}, number(features.active[i], 'share')),
              el('td', {}, number(features.largest[i])),
            ),
          ),
      );
    fill(SHOWN);
    return el(
      'article',
      {},
      el(
        'h2',
        {},
        `${features.name.length} features`,
        el('span', { class: 'quiet' }, ` ${features.title}`),
      ),
      el(
        'p',
        { class: 'quiet' },
        features.projected
          ? 'Places of the clips along given directions of the latent, from their mean.'
          : 'Activations as the file says; the store knows nothing of them.',
      ),
      el(
        'table',
        { class: 'list' },
        el(
          'thead',
          {},
          el(
            'tr',
            {},
            ['feature', 'most of its first clips', 'above zero', 'largest'].map((t) =>
              el('th', { scope: 'col' }, t),
            ),
          ),
        ),
        body,
      ),
      order.length > SHOWN
        ? el(
            'button',
            {
              type: 'button',
              class: 'small',
              onclick: (event) => {
                fill(order.length);
                event.target.remove();
              },
            },
            `all ${order.length}`,
          )
        : null,
    );
  }

  RA.views.feature = async (i) => page(await RA.load(`feature/${i}`));
  RA.views.features = async () => list();
})();
