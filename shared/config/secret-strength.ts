/** What a secret must hold of chance to withstand guessing. */
const ENOUGH_BITS = 128
const MIN_LENGTH = 24
const MIN_DIFFERENT = 8

/** What a strong secret is, for messages. */
export const STRONG_SECRET = `${MIN_LENGTH} random characters or more, as \`openssl rand -base64 32\` makes them`

/**
 * Whether a secret may be guessed: it is short, repeats itself, or is made of too few kinds of characters to hold 128 bits. What only
 * looks random cannot be told from what is.
 */
export function isWeakSecret(secret: string): boolean {
  const bits = period(secret) * Math.log2(alphabetOf(secret))
  return secret.length < MIN_LENGTH || new Set(secret).size < MIN_DIFFERENT || bits < ENOUGH_BITS
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
