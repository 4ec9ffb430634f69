export type Question = readonly [text: string, right: string, ...wrong: string[]]

/** Replace them with yours. */
export const QUESTIONS: readonly Question[] = [
  ['Which planet has the most mass?', 'Jupiter', 'Earth', 'Mars', 'Saturn'],
  ['How many legs does a spider have?', '8', '10', '12', '6'],
  ['Which metal is liquid at 20 °C?', 'Mercury', 'Iron', 'Lead', 'Tin'],
  ['Which is the longest bone?', 'Thigh bone', 'Rib', 'Shin bone', 'Spine'],
  ['How many squares does a chessboard have?', '64', '100', '49', '81'],
  ['What do bees collect?', 'Nectar', 'Leaves', 'Resin', 'Seeds'],
  ['Which ocean is the largest?', 'Pacific', 'Arctic', 'Atlantic', 'Indian'],
  ['How many strings has a violin?', '4', '3', '5', '6'],
]
