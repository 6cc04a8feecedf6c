// Two runs side by side: a number of this one, of the other, or their difference.
(() => {
  const { el } = RA;
  const MODES = {
    own: 'this run',
    other: 'the other run',
    difference: 'difference, same head',
    aligned: 'difference, most alike head',
    cka: 'likeness (CKA) to the most alike head',
  };

  // A metric as it is shown: of this run, of the other one, or their difference.
  function shown(key, mode) {
    const main = RA.main,
      { other } = main;
    const metric = main.numbers.find((m) => m.key === key) || main.numbers[0];
    if (!other || !mode || mode === 'own') return metric;
    const plain = { ...metric, low: null, high: null };
    if (mode === 'cka') {
      const label = 'CKA with the most alike head of the other run';
      const about = `1: the same similarities of clips; over ${other.aligned.n_clips} clips of both runs`;
      return {
        ...plain,
        key: 'cka',
        label,
        about,
        values: other.aligned.cka,
        better: 'neither',
        format: 'number',
        signed: false,
      };
    }
    const there = other.numbers.find((m) => m.key === metric.key);
    if (mode === 'other') {
      const none = other.ids.map(() => null);
      return {
        ...(there || { ...plain, values: none }),
        label: `${metric.label}, ${other.title} (${other.run})`,
      };
    }
    const place = new Map(other.ids.map((id, i) => [id, i]));
    const names = mode === 'aligned' ? other.aligned.best : main.heads.id;
    const theirs = names.map((id) => (there && place.has(id) ? there.values[place.get(id)] : null));
    const values = metric.values.map((v, i) =>
      v === null || theirs[i] === null ? null : v - theirs[i],
    );
    const label = `${metric.label}: this run less the other`;
    const about = `${main.title} (${main.run}) − ${other.title} (${other.run}); above zero: more in this run`;
    return { ...plain, label, about, values, signed: true, middle: 0, better: 'neither' };
  }

  function modes() {
    const { other } = RA.main;
    if (!other) return [];
    const possible = {
      own: true,
      other: true,
      difference: other.same_heads,
      aligned: other.aligned,
      cka: other.aligned,
    };
    return Object.keys(MODES).filter((m) => possible[m]);
  }

  // The heads of the map: those of this run, or of the other one.
  function headsOf(mode) {
    if (mode !== 'other') return RA.main.heads;
    const parts = RA.main.other.ids.map((id) => id.match(/\d+/g).map(Number));
    const [stage, block, head] = [0, 1, 2].map((k) => parts.map((p) => p[k]));
    return { id: RA.main.other.ids, stage, block, head };
  }

  // Which run or difference is shown, and why not all can be.
  function comparison(state, change) {
    const possible = modes();
    if (!possible.length) return null;
    const option = (m) =>
      el('option', { value: m, selected: m === (state.mode || 'own') }, MODES[m]);
    return el(
      'label',
      { class: 'field' },
      'Show ',
      el(
        'select',
        { id: 'mode', onchange: (e) => change({ mode: e.target.value, r: null }) },
        possible.map(option),
      ),
    );
  }

  function whyNot() {
    const { other } = RA.main;
    if (!other || (other.same_heads && other.aligned)) return null;
    const reasons = [
      other.same_heads
        ? null
        : 'the two encoders have different heads, so no head has a namesake there',
      other.aligned ? null : 'the runs share fewer than ten clips, so heads cannot be aligned',
    ];
    return el(
      'p',
      { class: 'quiet small-text' },
      `Not all can be compared: ${reasons.filter(Boolean).join('; ')}.`,
    );
  }

  RA.twoRuns = { shown, modes, headsOf, comparison, whyNot };
})();
