// The answer first, and what limits it.
(() => {
  const { el } = RA;

  // `code` in a sentence is set as code, a head's name leads to its page; all else is text.
  function said(sentence, own) {
    return sentence.split('`').map((part, i) => {
      if (i % 2) return el('code', {}, part);
      return part
        .split(/\b(s\d+\.b\d+\.h\d+)\b/)
        .map((word) =>
          own && RA.main.heads.id.includes(word) ? el('a', { href: `#${word}` }, word) : word,
        );
    });
  }

  function findings(answer, own) {
    return el(
      'dl',
      { class: 'findings' },
      answer.found.map((one) => [el('dt', {}, one.about), el('dd', {}, said(one.text, own))]),
    );
  }

  function limits(answer, open) {
    return el(
      'details',
      { class: 'limits', open },
      el('summary', {}, 'What limits this'),
      el(
        'ul',
        {},
        answer.limits.map((line) => el('li', {}, said(line, false))),
      ),
    );
  }

  // Which run: two of one title are told apart by their folders.
  function named({ title, run, n_clips: n }) {
    return [
      title,
      el('span', { class: 'quiet' }, ` ${RA.format.thousands(String(n))} clips, ${run}`),
    ];
  }

  function view(main) {
    const { other } = main;
    const wide = matchMedia('(min-width: 1100px)').matches;
    const missing = main.missing.length
      ? el('p', { class: 'missing' }, 'Missing here: ', said(main.missing.join('; '), false), '.')
      : null;
    const front = main.front ? RA.front.view(main.front) : null;
    if (!other) {
      return el(
        'section',
        { class: 'answer', 'aria-label': 'What was found' },
        el('div', {}, el('h2', {}, 'What was found'), findings(main.answer, true)),
        limits(main.answer, wide),
        front,
        missing,
      );
    }
    const column = (run, own) =>
      el('div', {}, el('h2', {}, named(run)), findings(run.answer, own), limits(run.answer, false));
    return el(
      'section',
      { class: 'answer two', 'aria-label': 'What was found in both runs' },
      column(main, true),
      column(other, false),
      front,
      missing,
    );
  }

  RA.answer = { view, said };
})();
