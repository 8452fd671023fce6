export function camelCase(text) {
  return text.toLowerCase().replace(/[-_ ]+(.)/g, (_, letter) => letter.toUpperCase());
}
