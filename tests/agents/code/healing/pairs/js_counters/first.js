export function makeCounters(count) {
  const counters = [];
  for (var n = 0; n < count; n++) {
    var next = n;
    counters.push(() => next++);
  }
  return counters;
}
