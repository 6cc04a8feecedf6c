// Search by word: heads whose words or clips fit, classes, clips.
(() => {
  const { el } = RA;
  const MOST = 8;

  function results(text) {
    const query = text.trim().toLowerCase(),
      has = RA.map.begins(query);
    if (!query) return [];
    const { heads, clips } = RA.main,
      found = [];
    const lit = RA.map.fitting(query),
      n = lit.filter(Boolean).length;
    if (n)
      found.push({
        label: `${n} heads on the map`,
        href: `#map?q=${encodeURIComponent(text.trim())}`,
        kind: 'map',
      });
    heads.id.forEach((id, i) => {
      if (!lit[i] || found.length > MOST) return;
      const word = heads.words[i].find(([w, grey]) => !grey && has(w));
      found.push({
        label: id,
        note: word ? word[0] : (heads.ends[i].find(([l]) => has(l)) || [''])[0],
        href: `#${id}`,
        kind: 'head',
      });
    });
    (RA.main.features ? RA.main.features.name : []).forEach((name, i) => {
      if (found.length > 2 * MOST || !has(name)) return;
      found.push({
        label: name,
        note: RA.main.features.label[i],
        href: `#feature/${i}`,
        kind: 'feature',
      });
    });
    let n_clips = 0;
    clips.id.forEach((id, i) => {
      if (
        n_clips >= MOST ||
        !(has(id) || has(clips.label[i]) || has(clips.caption && clips.caption[i]))
      )
        return;
      n_clips++;
      found.push({ label: RA.clipName(i), note: id, href: `#clip/${i}`, kind: 'clip' });
    });
    return found;
  }

  function box() {
    const list = el('ul', {
      id: 'results',
      role: 'listbox',
      'aria-label': 'search results',
      hidden: true,
    });
    const input = el('input', {
      id: 'search',
      type: 'search',
      placeholder: 'Search: dog, s3.b0.h0 …  ( / )',
      'aria-label': 'Search heads and clips by word',
      role: 'combobox',
      'aria-expanded': 'false',
      'aria-controls': 'results',
      autocomplete: 'off',
    });
    let at = 0;
    const links = () => [...list.querySelectorAll('a')];
    const close = () => {
      list.hidden = true;
      input.setAttribute('aria-expanded', 'false');
    };
    const mark = () =>
      links().forEach((a, i) => a.parentNode.setAttribute('aria-selected', String(i === at)));
    input.addEventListener('input', () => {
      const found = results(input.value);
      at = 0;
      list.replaceChildren(
        ...found.map((r) =>
          el(
            'li',
            { role: 'option', 'aria-selected': 'false' },
            el(
              'a',
              { href: r.href, tabindex: -1, onclick: close },
              el('span', { class: 'kind' }, r.kind),
              ' ',
              r.label,
              r.note ? el('span', { class: 'quiet' }, ` ${r.note}`) : null,
            ),
          ),
        ),
      );
      list.hidden = !found.length;
      input.setAttribute('aria-expanded', String(Boolean(found.length)));
      mark();
    });
    input.addEventListener('keydown', (event) => {
      const all = links();
      if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
        at = (at + (event.key === 'ArrowDown' ? 1 : all.length - 1)) % Math.max(all.length, 1);
        mark();
        event.preventDefault();
      } else if (event.key === 'Enter' && all[at]) {
        location.hash = all[at].getAttribute('href');
        close();
        input.blur();
      } else if (event.key === 'Escape') {
        close();
        input.blur();
      }
    });
    document.addEventListener('click', (event) => {
      if (!list.contains(event.target) && event.target !== input) close();
    });
    return el('div', { class: 'search' }, input, list);
  }

  RA.search = { box };
})();
