/** A point of the floor. */
export interface Point {
  x: number
  y: number
}

/** What the message `move` does: the room applies it, and the page of its player does so at once. */
export function move(player: Point, { x, y }: Point): void {
  player.x = x
  player.y = y
}
