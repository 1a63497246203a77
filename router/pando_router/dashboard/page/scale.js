// Scales of charts: from 0 to a round number, with whole numbers where things are counted.

/** The top of a scale, at least `highest`: 1, 2, 4 or 10 times a power of ten, so that its half is round, too. */
function topOf(highest, { least = 0, most = Infinity, counts = false } = {}) {
  const wanted = Math.max(highest, least, counts ? 2 : 0);
  if (!wanted) return 1;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return Math.min(most, [1, 2, 4, 10].find((n) => n * power >= wanted * 0.999) * power);
}
