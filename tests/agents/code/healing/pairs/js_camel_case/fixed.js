export function camelCase(text) {
  const words = text.toLowerCase().split(/[-_ ]+/).filter(Boolean);
  return words.map((word, place) => (place ? word[0].toUpperCase() + word.slice(1) : word)).join("");
}
