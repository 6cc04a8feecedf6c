// Addresses, keys, theme: every state has a permalink, and the back button works.
(() => {
  const { el } = RA;
  const content = document.getElementById('content');
  const DEFAULTS = { view: 'map', x: 'pr', y: 'fisher.probe_accuracy' };
  let shown = 0; // the newest view asked for: a slower one must not overwrite it

  // "#map?m=pr&r=1,2" → ['map', { m, r }]
  function address() {
    const [path, query] = decodeURI(location.hash.slice(1)).split('?');
    return [path || 'map', Object.fromEntries(new URLSearchParams(query || ''))];
  }

  function hash(path, query) {
    const text = Object.entries(query)
      .filter(([, v]) => v !== null && v !== undefined && v !== '')
      .map(
        ([k, v]) =>
          `${encodeURIComponent(k)}=${encodeURIComponent(v).replace(/%2C/g, ',').replace(/%3A/g, ':')}`,
      )
      .join('&');
    return `#${path}${text ? `?${text}` : ''}`;
  }
  RA.go = (path, query) => {
    location.hash = hash(path, query);
  };
  // The address of the state that is shown already: no new view, no new step of the back button.
  RA.remember = (path, query) => {
    // whole, since a bare fragment would be taken for one of the page around a notebook's frame
    history.replaceState(null, '', location.href.split('#')[0] + hash(path, query));
  };
  RA.gainsQuery = ({ gains, presets }) => ({
    ...Object.fromEntries(Object.entries(gains).map(([name, list]) => [name, list.join(',')])),
    ...(Object.keys(presets).length
      ? {
          p: Object.entries(presets)
            .map(([k, v]) => `${k}:${v}`)
            .join(','),
        }
      : {}),
  });

  function mapView(query) {
    const { numbers } = RA.main;
    const known = (key) => numbers.some((m) => m.key === key);
    const first = ['ablation_head_direct.d_margin', 'pr'].find(known) || (numbers[0] || {}).key;
    const state = { ...DEFAULTS, m: first, ...query };
    if (!known(state.m)) state.m = first;
    if (!known(state.x)) state.x = first;
    if (!known(state.y)) state.y = numbers[numbers.length - 1].key;
    if (state.view === 'plane' && !RA.main.layout) state.view = 'map';
    const ends = state.r ? state.r.split(',').map(Number) : [];
    state.r = ends.length === 2 && ends.every(Number.isFinite) ? ends : null;
    const change = (part) => {
      const now = { ...query, ...part };
      if (part.r) now.r = part.r.map((v) => v.toPrecision(5)).join(',');
      RA.go('map', now);
    };
    return el(
      'div',
      {},
      query.m || query.q || query.view || query.r ? null : RA.answer.view(RA.main),
      RA.map.view(state, change),
    );
  }

  function moveState(query) {
    const gains = {},
      presets = {};
    const { stages, presets: offered } = RA.main.move || { stages: {}, presets: [] };
    const units = new Set([
      ...RA.main.heads.id,
      ...Object.keys(stages),
      ...Object.values(stages).flat(),
    ]);
    for (const [key, value] of Object.entries(query)) {
      const list = value.split(',').map(Number);
      if (units.has(key) && list.every(Number.isFinite)) gains[key] = list;
    }
    for (const part of (query.p || '').split(',')) {
      const [key, amount] = part.split(':');
      if (offered.some((p) => p.key === key))
        presets[key] = Number.isFinite(Number(amount)) ? Number(amount) : 1;
    }
    return { gains, presets, head: RA.main.heads.id.includes(query.head) ? query.head : null };
  }

  async function draw() {
    const turn = ++shown,
      [path, query] = address(),
      { heads, clips, features } = RA.main;
    const clip = /^clip\/(\d+)$/.exec(path),
      feature = features && /^feature\/(\d+)$/.exec(path);
    if (path === 'content') return;
    RA.audio.stop();
    content.setAttribute('aria-busy', 'true');
    let node;
    try {
      if (heads.id.includes(path)) node = await RA.views.head(path);
      else if (clip && Number(clip[1]) < clips.id.length)
        node = await RA.views.clip(Number(clip[1]));
      else if (feature && Number(feature[1]) < features.name.length)
        node = await RA.views.feature(Number(feature[1]));
      else if (path === 'features' && features) node = await RA.views.features();
      else if (path === 'clips') node = await RA.views.clips();
      else if (path === 'move') node = await RA.views.move(moveState(query));
      else if (path === 'map') node = mapView(query);
      else
        node = el(
          'p',
          {},
          `There is no “${path}” in this atlas. `,
          el('a', { href: '#map' }, 'To the map'),
        );
    } catch (error) {
      node = el(
        'p',
        { class: 'missing', role: 'alert' },
        `This view cannot be shown: ${error.message}`,
      );
    }
    if (turn !== shown) return;
    const same = content.dataset.path === path;
    const active = same && document.activeElement ? document.activeElement.id : null;
    content.replaceChildren(node);
    content.removeAttribute('aria-busy');
    content.dataset.path = path;
    content.dataset.ready = location.hash || '#map';
    document.querySelectorAll('nav a').forEach((a) => {
      const here = a.getAttribute('href') === `#${path}`;
      if (here) a.setAttribute('aria-current', 'page');
      else a.removeAttribute('aria-current');
    });
    if (!same) {
      window.scrollTo(0, 0);
      RA.say(path);
    } else if (active) document.getElementById(active)?.focus();
    document.title = `${path} · ${RA.main.title}`;
  }

  function theme() {
    const root = document.documentElement;
    const kept = (() => {
      try {
        return localStorage.getItem('atlas-theme');
      } catch {
        return null;
      }
    })();
    if (kept === 'dark' || kept === 'light') root.dataset.theme = kept;
    return el(
      'button',
      {
        type: 'button',
        class: 'small',
        'aria-label': 'switch between light and dark',
        onclick: () => {
          root.dataset.theme = RA.colour.dark() ? 'light' : 'dark';
          try {
            localStorage.setItem('atlas-theme', root.dataset.theme);
          } catch {
            /* a page from a file may have no storage */
          }
          draw();
        },
      },
      '◐',
    );
  }

  function walk(key) {
    const [path] = address(),
      { id, stage, block, head } = RA.main.heads;
    const cell =
      document.activeElement && document.activeElement.dataset
        ? document.activeElement.dataset.id
        : null;
    const from = cell || (id.includes(path) ? path : null);
    if (!from) return false;
    const i = id.indexOf(from);
    let to = key === 'ArrowRight' ? i + 1 : key === 'ArrowLeft' ? i - 1 : null;
    if (to === null) {
      const rows = [...new Set(id.map((_, j) => `${stage[j]}.${block[j]}`))];
      const row = rows.indexOf(`${stage[i]}.${block[i]}`) + (key === 'ArrowDown' ? 1 : -1);
      const there = id.map((_, j) => j).filter((j) => `${stage[j]}.${block[j]}` === rows[row]);
      to = there.length ? there[Math.min(head[i], there.length - 1)] : i;
    }
    if (to < 0 || to >= id.length) return true;
    if (cell && !id.includes(path))
      document.querySelector(`[data-id="${CSS.escape(id[to])}"]`)?.focus();
    else location.hash = id[to];
    return true;
  }

  function keys(event) {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === '/') {
      document.getElementById('search').focus();
      event.preventDefault();
    } else if (event.key.startsWith('Arrow')) {
      if (walk(event.key)) event.preventDefault();
    } else if (event.key === ' ' && !/^(BUTTON|A|SUMMARY)$/.test(event.target.tagName)) {
      const picture =
        document.querySelector('.clip.playing button.picture') ||
        document.querySelector('button.picture:not(:disabled)');
      if (picture) {
        picture.click();
        event.preventDefault();
      }
    }
  }

  // Links within the page, by hand: in a frame without an address of its own (a notebook) they
  // would lead to the page around it.
  function follow(event) {
    const link = event.target.closest && event.target.closest('a[href^="#"]');
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey) return;
    if (event.shiftKey || event.altKey || link.getAttribute('href') === '#content') return;
    event.preventDefault();
    location.hash = link.getAttribute('href');
  }

  function frame(main) {
    const link = (path, label) => el('a', { href: `#${path}` }, label);
    document
      .getElementById('top')
      .append(
        el(
          'h1',
          {},
          el(
            'a',
            { href: '#map' },
            main.other ? `${main.title} ↔ ${main.other.title}` : main.title,
          ),
        ),
        el(
          'nav',
          { 'aria-label': 'views' },
          link('map', 'Heads'),
          link('clips', 'Clips'),
          main.features ? link('features', 'Features') : null,
          main.move ? link('move', 'Move it') : null,
          main.report ? el('a', { href: main.report }, 'Figures') : null,
        ),
        RA.search.box(),
        theme(),
      );
    document
      .getElementById('foot')
      .append(
        `${main.n_clips} clips · ${main.heads.id.length} heads · ` +
          (main.template ? `prompt “${main.template}” · ` : '') +
          `weights ${main.model.sha256.slice(0, 12)}… · ResiDual Audio ${main.version}. ` +
          'Nothing leaves this page.',
        RA.audio.player,
      );
  }

  RA.load('main')
    .then((main) => {
      RA.main = main;
      frame(main);
      window.addEventListener('hashchange', draw);
      matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
      document.addEventListener('keydown', keys);
      document.addEventListener('click', follow);
      return draw();
    })
    .catch((error) => {
      content.replaceChildren(
        el(
          'p',
          { class: 'missing', role: 'alert' },
          `The atlas cannot be opened: ${error.message}`,
        ),
      );
    });
})();
