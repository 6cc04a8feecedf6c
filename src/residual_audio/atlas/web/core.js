'use strict';
// Pieces of data, elements, packed arrays: what every view stands on.
const RA = (() => {
  const pieces = new Map();
  const waiting = new Map();
  const views = {};

  const damaged = (name) =>
    new Error(`the piece ${name} of this atlas is damaged: write the atlas again`);

  const table = Uint32Array.from({ length: 256 }, (_, n) => {
    for (let i = 0; i < 8; i++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n >>> 0;
  });

  // CRC-32 of a text in UTF-8, as Python's zlib has it.
  function checksum(text) {
    let sum = 0xffffffff;
    for (const byte of new TextEncoder().encode(text))
      sum = table[(sum ^ byte) & 255] ^ (sum >>> 8);
    return (sum ^ 0xffffffff) >>> 0;
  }

  // A piece registers itself: it is a script that calls this. What is not as it was written is not
  // taken.
  function put(name, check, text) {
    if (checksum(text) === check) pieces.set(name, JSON.parse(text));
  }

  // A piece by name: from memory, from a block of this file, or by loading its script.
  function load(name) {
    if (pieces.has(name)) return Promise.resolve(pieces.get(name));
    if (waiting.has(name)) return waiting.get(name);
    const block = document.querySelector(`script[data-piece="${CSS.escape(name)}"]`);
    if (block) {
      put(name, Number(block.dataset.check), block.textContent);
      return pieces.has(name) ? Promise.resolve(pieces.get(name)) : Promise.reject(damaged(name));
    }
    const promise = new Promise((resolve, reject) => {
      const script = document.createElement('script');
      script.src = `data/${name}.js`;
      script.onload = () => (pieces.has(name) ? resolve(pieces.get(name)) : reject(damaged(name)));
      script.onerror = () => reject(new Error(`the piece ${name} of this atlas is missing`));
      document.head.append(script);
    });
    waiting.set(name, promise);
    promise.catch(() => waiting.delete(name));
    return promise;
  }

  // An element; text is always text, never markup. `on…` are listeners.
  function el(tag, attributes, ...children) {
    const svg = ['svg', 'g', 'rect', 'circle', 'line', 'path', 'text', 'title', 'polyline'];
    const node = svg.includes(tag)
      ? document.createElementNS('http://www.w3.org/2000/svg', tag)
      : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
      else if (key === 'style')
        for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else if (key === 'value') node.value = value;
      else node.setAttribute(key, value === true ? '' : String(value));
    }
    node.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
    return node;
  }

  function bytes(text) {
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }

  // A packed array as Float32Array with its shape.
  function unpack(packed) {
    const data = bytes(packed.data);
    let values;
    if (packed.kind === 'f32') values = new Float32Array(data.buffer);
    else if (packed.kind === 'u8') {
      const step = (packed.high - packed.low) / 255;
      values = Float32Array.from(data, (v) => packed.low + v * step);
    } else {
      const whole = new Int16Array(data.buffer);
      const scale = new Float32Array(bytes(packed.scale).buffer);
      const width = scale.length ? whole.length / scale.length : 0;
      values = new Float32Array(whole.length);
      for (let r = 0, i = 0; r < scale.length; r++) {
        for (let c = 0; c < width; c++, i++) values[i] = whole[i] * scale[r];
      }
    }
    return { values, shape: packed.shape };
  }

  // What a clip is called: by its label, else by its first caption, else by its id.
  function clipName(row) {
    const { label, caption, id } = RA.main.clips;
    return label[row] || (caption && caption[row]) || id[row];
  }

  // Said to screen readers.
  function say(text) {
    document.getElementById('status').textContent = text;
  }

  // A file that the reader keeps; it is made in the page and goes nowhere.
  function save(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = el('a', { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  return { put, load, el, unpack, clipName, say, save, views, main: null };
})();
