/** What a secret must hold of chance to withstand guessing. */
const ENOUGH_BITS = 128
const MIN_LENGTH = 24
const MIN_DIFFERENT = 8

/** What a strong secret is, for messages. */
export const STRONG_SECRET = `${MIN_LENGTH} random characters or more, as \`openssl rand -base64 32\` makes them`

/** Why a secret may be guessed, in words that do not tell it; undefined for one that holds 128 bits, as far as can be seen. */
export function weaknessOf(secret: string): string | undefined {
  if (secret.length < MIN_LENGTH) return `it has ${secret.length} characters`
  if (period(secret) < secret.length) return 'it repeats itself'
  const different = new Set(secret).size
  if (different < MIN_DIFFERENT) return `it has ${different} different characters`
  const bits = Math.floor(secret.length * Math.log2(alphabetOf(secret)))
  return bits < ENOUGH_BITS ? `${secret.length} characters of its kinds hold ${bits} bits` : undefined
}

/** How many characters there are before the text repeats itself. */
const period = (text: string): number => (text + text).indexOf(text, 1)

/** How many characters there are of the kinds that the text uses. */
function alphabetOf(text: string): number {
  if (/^[0-9a-f]*$/i.test(text)) return /[a-f]/i.test(text) ? 16 : 10
  const kinds: readonly [RegExp, number][] = [
    [/[a-z]/, 26],
    [/[A-Z]/, 26],
    [/[0-9]/, 10],
    [/[^a-zA-Z0-9]/, 32],
  ]
  return kinds.reduce((sum, [kind, size]) => sum + (kind.test(text) ? size : 0), 0)
}
