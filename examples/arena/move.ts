/** A point of the floor. */
export interface Point {
  x: number
  y: number
}

/** Applies the message `move`. The room calls it, and the player's page calls it for prediction. */
export function move(player: Point, { x, y }: Point): void {
  player.x = x
  player.y = y
}
