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

/** Colours that are easy to tell apart, on light and on dark ground. */
const COLOURS: readonly string[] = [
  'oklch(62% 0.21 27)',
  'oklch(60% 0.19 262)',
  'oklch(87% 0.17 95)',
  'oklch(60% 0.16 150)',
  'oklch(62% 0.22 310)',
  'oklch(75% 0.17 58)',
  'oklch(76% 0.13 225)',
  'oklch(80% 0.14 355)',
  'oklch(84% 0.2 130)',
  'oklch(50% 0.09 50)',
  'oklch(68% 0.11 190)',
  'oklch(58% 0.03 270)',
]

/**
 * Returns the colour of each member, as CSS. Up to 12 members have different colours, and a member keeps its colour when others join.
 * `ids` are in the order of joining, which is the same in every tab.
 */
export function coloursOf(ids: readonly string[]): ReadonlyMap<string, string> {
  const colours = new Map<string, string>()
  let free: string[] = []
  for (const id of ids) {
    if (free.length === 0) free = [...COLOURS]
    // The hash of the id chooses a colour. If another member has this colour, the next free colour is used.
    const own = hash(`colour ${id}`) % COLOURS.length
    const from = free.findIndex((colour) => COLOURS.indexOf(colour) >= own)
    colours.set(id, free.splice(Math.max(0, from), 1)[0]!)
  }
  return colours
}
