export function countWords(text) {
  const counts = Object.create(null);
  for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {
    counts[word] = (counts[word] ?? 0) + 1;
  }
  return counts;
}
