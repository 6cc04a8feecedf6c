// The answer first, and what limits it.
(() => {
  const { el } = RA;

  // `code` in a sentence is set as code; everything else is text.
  const said = (sentence) => el('li', {}, sentence.split('`').map((part, i) => (i % 2 ? el('code', {}, part) : part)));

  function view(main) {
    const rows = (title, part) => [
      el('h2', { class: 'run-title' }, title),
      el('ul', { class: 'findings' }, part.found.map(said)),
      el('details', {}, el('summary', {}, 'What limits this'),
        el('ul', {}, part.limits.map(said))),
    ];
    return el('section', { class: main.other ? 'answer two' : 'answer', 'aria-label': 'What was found' },
      el('div', {}, rows(main.other ? `${main.title} (${main.run})` : 'What was found', main.answer)),
      main.other ? el('div', {}, rows(`${main.other.title} (${main.other.run})`, main.other.answer)) : null,
      main.front ? RA.front.view(main.front) : null,
      main.missing.length
        ? el('p', { class: 'missing' }, 'Missing here: ', main.missing.join('; '), '.') : null);
  }

  RA.answer = { view };
})();
