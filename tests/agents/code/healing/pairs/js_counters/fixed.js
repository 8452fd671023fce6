export function makeCounters(count) {
  return Array.from({ length: count }, (_, n) => {
    let next = n;
    return () => next++;
  });
}
