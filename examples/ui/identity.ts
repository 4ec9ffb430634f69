const MOODS = [
  'Brave',
  'Calm',
  'Clever',
  'Cosy',
  'Daring',
  'Eager',
  'Fuzzy',
  'Gentle',
  'Happy',
  'Jolly',
  'Keen',
  'Lucky',
  'Merry',
  'Mighty',
  'Nimble',
  'Plucky',
  'Proud',
  'Quick',
  'Quiet',
  'Sleepy',
  'Sly',
  'Snappy',
  'Sunny',
  'Witty',
] as const
const ANIMALS = [
  'Badger',
  'Bear',
  'Beaver',
  'Crane',
  'Duck',
  'Falcon',
  'Ferret',
  'Fox',
  'Gecko',
  'Heron',
  'Ibex',
  'Koala',
  'Lemur',
  'Lynx',
  'Marten',
  'Mole',
  'Moth',
  'Newt',
  'Otter',
  'Owl',
  'Panda',
  'Puffin',
  'Raven',
  'Seal',
  'Stoat',
  'Swift',
  'Tapir',
  'Toad',
  'Vole',
  'Wolf',
  'Wren',
  'Yak',
] as const

/** Returns a 32-bit hash of a text (FNV-1a). */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193)
  return value >>> 0
}

/**
 * Returns a member's name: the chosen name at the start of its `sub`, or two words from its member id.
 */
export function nameOf(memberId: string, sub?: string | null): string {
  const chosen = sub?.split('~')[0]
  if (chosen) return chosen
  const value = hash(memberId)
  return `${MOODS[value % MOODS.length]} ${ANIMALS[(value >>> 8) % ANIMALS.length]}`
}

/** Returns a member's hue in degrees, 0–359. Neighbours in the list of members get different colours. */
export const hueOf = (memberId: string): number => Math.floor((hash(`hue ${memberId}`) * 137.508) % 360)
