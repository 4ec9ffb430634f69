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

/** A 32-bit number from any text, the same every time (FNV-1a). */
function hash(text: string): number {
  let value = 0x811c9dc5
  for (const character of text) value = Math.imul(value ^ (character.codePointAt(0) ?? 0), 0x01000193)
  return value >>> 0
}

/**
 * What to call a member: the name it chose, which its `sub` begins with, or else two words from its member id.
 */
export function nameOf(memberId: string, sub?: string | null): string {
  const chosen = sub?.split('~')[0]
  if (chosen) return chosen
  const value = hash(memberId)
  return `${MOODS[value % MOODS.length]} ${ANIMALS[(value >>> 8) % ANIMALS.length]}`
}

/** A member's own hue in degrees, 0–359: neighbours in the list of members are far apart in colour. */
export const hueOf = (memberId: string): number => Math.floor((hash(`hue ${memberId}`) * 137.508) % 360)
