// Numbers and names as people read them.
(() => {
  const minus = (text) => text.replace(/-/g, '−');

  function number(value, format) {
    if (value === null || value === undefined || !Number.isFinite(value)) return '–';
    if (format === 'share') return minus(`${(100 * value).toFixed(1)}%`);
    const size = Math.abs(value);
    if (size === 0) return '0';
    if (size >= 1000) return minus(value.toFixed(0));
    if (size >= 100) return minus(value.toFixed(1));
    if (size >= 0.01) return minus(Number(value.toPrecision(3)).toString());
    return minus(value.toExponential(1));
  }

  function interval(metric, i) {
    if (!metric.low || metric.low[i] === null || metric.high[i] === null) return '';
    return `${number(metric.low[i], metric.format)} to ${number(metric.high[i], metric.format)}`;
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

  RA.format = { number, interval, csv, longName, minus };
})();
