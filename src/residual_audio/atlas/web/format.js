// Numbers and names as people read them.
(() => {
  const minus = (text) => text.replace(/-/g, '−');
  const raised = (n) => String(n).replace(/[-\d]/g, (c) => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(c)]);
  const thousands = (text) => text.replace(/\B(?=(\d{3})+$)/g, ',');

  function small(value) {
    const [digits, power] = value.toExponential(1).split('e');
    return minus(`${digits}×10${raised(Number(power))}`);
  }

  function number(value, format) {
    if (value === null || value === undefined || !Number.isFinite(value)) return '–';
    if (format === 'share') return minus(`${(100 * value).toFixed(1)}%`);
    if (format === 'score') return minus(value.toFixed(3).replace(/^-(0\.0+)$/, '$1'));
    const size = Math.abs(value);
    if (size === 0) return '0';
    if (size >= 1000) return minus(thousands(value.toFixed(0)));
    if (size >= 100) return minus(value.toFixed(1));
    if (size >= 0.1) return minus(Number(value.toPrecision(3)).toString());
    return size >= 1e-4 ? minus(value.toPrecision(2)) : small(value);
  }

  // A way to write these values so that their points stand below each other.
  function alike(values, format) {
    const largest = Math.max(...values.filter(Number.isFinite).map(Math.abs), 0);
    if (format === 'share' || largest >= 1000 || largest < 1e-3) return (v) => number(v, format);
    const places = Math.min(5, Math.max(1, 2 - Math.floor(Math.log10(largest))));
    return (v) => (Number.isFinite(v) && v !== null ? minus(v.toFixed(places)) : '–');
  }

  function interval(metric, i) {
    if (!metric.low || metric.low[i] === null || metric.high[i] === null) return '';
    return `${number(metric.low[i], metric.format)} to ${number(metric.high[i], metric.format)}`;
  }

  // Round numbers between two ends, for an axis.
  function ticks(low, high, about = 5) {
    const rough = (high - low) / about || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) {
      found.push(Number((k * step).toPrecision(12)));
    }
    return found;
  }

  // A cell of CSV; a text that a spreadsheet would run as a formula is disarmed.
  function cell(value) {
    if (value === null || value === undefined) return '';
    let text = String(value);
    if (typeof value === 'string' && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }

  function csv(header, rows) {
    return [header, ...rows].map((row) => row.map(cell).join(',')).join('\n') + '\n';
  }

  function longName(id) {
    const parts = /^s(\d+)\.b(\d+)\.h(\d+)$/.exec(id);
    return parts ? `stage ${parts[1]}, block ${parts[2]}, head ${parts[3]}` : id;
  }

  RA.format = { number, alike, interval, ticks, csv, longName, minus, thousands };
})();
